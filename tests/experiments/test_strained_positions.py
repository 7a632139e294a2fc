"""The planned measurements of chapter 11: variants by name, gains by hand, curves of distance."""

import pandas as pd
import pytest
import torch

from rmutils.attention.ms_poe import rescaled
from rmutils.attention.variants import PLAIN
from rmutils.book.chapters.ms_poe import experiment as strained_positions
from rmutils.core.experiment import load_plan
from rmutils.models.engine.implementations import using
from tests.conftest import two_families

PLAN = load_plan("ms_poe")
PLACES = PLAN.content["needles"]["depths"]


@two_families
@pytest.mark.parametrize(("name", "ratios"), [
    ("1 to 1.5", [1, 1.5]), ("all 1.25", [1.25, 1.25]), ("1.5 to 1", [1.5, 1]),
    ("1 or 1.5", [1, 1.5]), ("8 to 16", [8, 16])])
def test_variants_by_name(lm, name, ratios):
    """The ratios of the first and the last head."""
    with rescaled(lm.model, strained_positions.variant(name, lm, 640, 2)) as scales:
        found = scales[0].ratios
    assert [found[0].item(), found[-1].item()] == pytest.approx(ratios)
    assert len({round(one, 4) for one in found.tolist()}) == (
        1 if "all" in name else 2 if "or" in name else 4)


def needles(found):
    """A table of 20 needles; `found` says of cause, length, variant and place which share."""
    return pd.DataFrame([
        {"model": "m", "cause": cause, "length": length, "variant": variant, "place": place,
         "question": question, "correct": float(question < 20 * found(
             cause, length, variant, place))}
        for cause in "AB" for length in (256, 512) for variant in (PLAIN, "1 to 1.5")
        for place in PLACES for question in range(20)])


def test_the_rule_of_the_plan():
    """B loses everywhere beyond and gains 0.3; A loses in the middle and gains nothing."""
    def found(cause, length, variant, place):
        if cause == "A":
            return 0.8 if place in (0, 1) else 0.4
        return 0.9 if length == 256 else 0.8 if variant != PLAIN else 0.5

    table = needles(found)
    gains = strained_positions.gains(table).set_index(["cause", "length", "model", "part"])
    assert gains.loc[("B", 512, "m", "middle"), "value"] == pytest.approx(0.3)
    assert gains.loc[("A", 256, "m", "middle"), ["plain", "value"]].tolist() == [0.4, 0]
    result = strained_positions.tested(table, PLAN)
    assert {name: round(float(one.value), 2) for name, one in result.items()} == {
        "dip of A": 0.4, "loss of B": 0.4, "A": 0, "B": 0.3, "B less A": 0.3}


def test_scores_by_distance_of_a_single_content(lm):
    """Where all tokens are the same, the curve is the model's own attention, read backwards (in the
    last layer, which sees all keys in every family)."""
    ids = torch.full((1, 40), 9)
    with using(lm.model, "eager"), torch.inference_mode():
        weights = lm.model(ids, output_attentions=True).attentions[-1][0, :, -1].log()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strained_positions, "passages", lambda *args: (ids.tolist(), 0))
        found = strained_positions.distance_scores(lm, [0, 1, 20, 39])
    first = found[found["layer"] == 3].pivot(index="head", columns="distance", values="score")
    expected = weights.flip(-1)[:, [0, 1, 20, 39]]
    torch.testing.assert_close(torch.tensor(first.to_numpy()), expected - expected[:, :1],
                               rtol=1e-3, atol=1e-3)
