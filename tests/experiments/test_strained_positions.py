"""The planned measurements of chapter 11: variants by name, gains by hand, curves of distance."""

import pandas as pd
import pytest
import torch

from rmutils.attention.ms_poe import rescaled
from rmutils.attention.rope import inverse_frequencies
from rmutils.attention.variants import PLAIN
from rmutils.book.chapters.ms_poe import experiment as strained_positions
from rmutils.book.chapters.ms_poe import sentences as told
from rmutils.book.experiments import under_variants
from rmutils.book.figures.report import spell
from rmutils.core.experiment import load_plan
from rmutils.core.paths import NOTEBOOKS
from rmutils.models.engine.implementations import using
from rmutils.stats import Interval

PLAN = load_plan("ms_poe")
PLACES = PLAN.content["needles"]["depths"]


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


def test_all_planned_variants_are_known(lm):
    for config in strained_positions.planned(PLAN):
        for name in config.variants:
            strained_positions.variant(name, lm, config.trained, config.yarn)


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
    assert "As predicted" in told.two_causes(result, PLAN, models=1)
    rows = pd.DataFrame({"cause": "B", "length": 512, "part": "middle", "value": 0.3,
                         "variant": ["b", "b", "a", "a"], "model": ["m", "n"] * 2,
                         "low": [0.1, -0.1, -0.5, -0.1], "high": [0.5, 0.5, -0.1, 0.5]})
    said = told.new_distances(rows, 512)
    assert "are new, one variant helps 1 of 2 models (*b*); one harms 1 (*a*). These" in said
    assert said.endswith("not corrected for 4 comparisons.")
    none = told.new_distances(rows.assign(low=-0.1, high=0.1), 512)
    assert "none of 2 variants helps any of 2 models. These" in none


def test_a_model_that_finds_nearly_all_cannot_show_a_gain():
    rows = pd.DataFrame({"cause": "", "part": "middle", "variant": told.MANY, "length": 1024,
                         "model": ["m", "n"], "plain": [0.5, 0.95], "value": [0.3, 0.05],
                         "low": [0.1, 0.0], "high": [0.5, 0.1]})
    said = told.beyond_length(rows)
    assert "help 1 of 1 models that could show it" in said and "n finds 95% already" in said


def test_widths_and_changes_within_the_trained_length():
    rows = pd.DataFrame({"part": ["middle", "middle", "middle", "all places"],
                         "low": [-0.1, 0.0, 0.0, 0.1], "high": [0.1, 0.1, 0.4, 0.2]})
    assert told.widths(rows).endswith(
        "20 points (middle) and 10 points (all places) in the median, 10 to 40 in all.")
    changed = pd.DataFrame({"low": [-0.2, -0.1, 0.0], "high": [-0.1, 0.1, 0.1]})
    assert "none of 3 variants is shown to help `m`" in told.nothing_to_repair(changed, "m")
    assert "one is shown to harm" in told.nothing_to_repair(changed, "m")
    assert "one of 3 variants is shown to help" in told.nothing_to_repair(changed + 0.05, "m")


def test_the_summary_of_the_chapter_agrees_with_what_is_stored():
    """The chapter closes with what three models could not show, and with no gain within a length.
    """
    words = (NOTEBOOKS / "11_ms_poe.ipynb").read_text(encoding="utf-8")
    tables, runs = strained_positions.positions()
    models = {*tables["needles"].query("cause != ''")["model"]}
    could_not = "could not be tested" in told.verdict_on_causes(
        strained_positions.tested(tables["needles"], PLAN), PLAN, len(models))
    assert could_not == (f"our {spell(len(models))} models could not show it" in words)
    within = tables["needles"].query("cause != '' and length == 256")
    real = strained_positions.within_length(told.LARGE)
    helped = (strained_positions.gains(within)["low"] > 0).any() or any(
        (under_variants.changes(real.tables[name], "correct")["low"] > 0).any()
        for name in ("needles", "documents"))
    assert helped != ("Within it, no change of positions is shown to help" in words)


@pytest.mark.parametrize(("changes", "verdict"), [
    ({"dip of A": Interval(0.1, -0.1, 0.3)}, "answers at the ends makes a dip"),
    ({"A": Interval(0.2, 0.1, 0.3)}, "repairs a loss by where answers stood"),
    ({"B": Interval(-0.2, -0.3, -0.1)}, "harms where distances are new"),
    ({"B less A": Interval(0.1, -0.1, 0.3)}, "stays undecided")])
def test_other_verdicts(changes, verdict):
    found = {"dip of A": Interval(0.4, 0.3, 0.5), "loss of B": Interval(0.4, 0.3, 0.5),
             "A": Interval(0, -0.1, 0.1), "B": Interval(0.3, 0.2, 0.4),
             "B less A": Interval(0.3, 0.2, 0.4)} | changes
    assert verdict in told.two_causes(found, PLAN, models=3)


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


def test_the_bound_starts_at_one_and_falls(lm):
    bound = strained_positions.bound_of_decay(inverse_frequencies(lm.model, 0), [0, 50, 2000])
    assert bound[0] == pytest.approx(1) and bound[0] > bound[1] > bound[2]
