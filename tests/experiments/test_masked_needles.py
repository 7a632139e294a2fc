"""Needles without heads: maskings counted by hand, answers against one mask at a time."""

import numpy as np
import pytest

from rmutils import DetectConfig, HeadScores, load_model, mask_heads
from rmutils.book.experiments import masked_needles as module
from rmutils.book.experiments import real_models
from rmutils.book.experiments.masked_needles import (
    ANYWHERE,
    EVERY,
    MATCHED,
    NEWEST,
    TOP,
    WHOLE,
    MaskedNeedlesConfig,
    heads_in,
    masked_needles,
    masked_needles_stored,
    maskings_of,
)
from rmutils.core.errors import NotStored, UserError
from rmutils.core.paths import CORPORA
from rmutils.corpora.niah import load_needles
from rmutils.evaluation.answers import find_needles

GRID = DetectConfig(lengths=(256,), depths=(0.5,), needles=2, max_new_tokens=16)
CONFIG = MaskedNeedlesConfig(
    detect=GRID, counts=(2,), curve=(1, 5, 100), same_layers=2, anywhere=1, every_position=1,
    asked=DetectConfig(lengths=(256,), depths=(0.5,), max_new_tokens=16), sets=("literal",),
    skipped=3, needles=2)


def scores_of(*layers, name="copy"):
    return HeadScores(np.array([layers], float), "a model", score=name)


COPY = scores_of([0, 0, 0, 0, 0], [0.9, 0.5, 0.2, 0.1, 0], [0, 0, 0, 0.3, 0.05])


def chosen(maskings, policy, count):
    return [heads_in(row.heads) for row in maskings.itertuples()
            if (row.policy, row.count) == (policy, count)]


def test_counts_are_numbers_shares_and_all_at_tau():
    """Of 15 heads: 4, 13 % (1.95, so 2), and the five at or above 0.1; the curve has no controls.
    """
    maskings = maskings_of({"copy": COPY}, CONFIG.changed({
        "counts": (4,), "shares": (0.13,), "all_at_tau": True, "curve": (1, 2, 14, 15, 128)}))
    assert maskings["policy"].iloc[0] == WHOLE and maskings["heads"].iloc[0] == ""
    assert {*maskings.loc[maskings["policy"] == TOP, "count"]} == {1, 2, 4, 5, 14}
    for policy, draws in ((MATCHED, 2), (ANYWHERE, 1)):
        part = maskings[maskings["policy"] == policy]
        assert part.groupby("count").size().to_dict() == {2: draws, 4: draws, 5: draws}
    assert chosen(maskings, TOP, 4) == [[(1, 0), (1, 1), (1, 2), (2, 3)]]


def test_controls_have_none_of_the_heads_that_copy():
    """Layer 1 has one head to draw, so three of four come from its neighbours."""
    maskings = maskings_of({"copy": COPY}, CONFIG.changed({
        "counts": (4,), "same_layers": 9, "anywhere": 30}))
    reached = {(1, 0), (1, 1), (1, 2), (1, 3), (2, 3)}
    draws = {policy: chosen(maskings, policy, 4) for policy in (MATCHED, ANYWHERE)}
    for heads in [*draws[MATCHED], *draws[ANYWHERE]]:
        assert len({*heads}) == 4 and not reached & {*heads}
    assert all((1, 4) in heads for heads in draws[MATCHED])
    assert {*maskings.loc[maskings["policy"] == MATCHED, "displaced"]} == {2}
    assert len({head for heads in draws[ANYWHERE] for head in heads}) == 10


def test_heads_at_tau_are_allowed_only_where_others_run_short():
    maskings = maskings_of({"copy": COPY}, CONFIG.changed({"tau": 0.05, "counts": (7, 9)}))
    assert chosen(maskings, MATCHED, 7) and not chosen(maskings, MATCHED, 9)
    tight = maskings_of({"copy": COPY}, CONFIG.changed({"tau": 0.0, "counts": (5,)}))
    assert len(chosen(tight, MATCHED, 5)) == 2
    assert not {head for heads in chosen(tight, MATCHED, 5) for head in heads} & {
        *chosen(tight, TOP, 5)[0]}


def test_each_score_has_its_own_heads_and_controls():
    other = scores_of([3, 2, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0], name="dla")
    maskings = maskings_of({"dla": other, "copy": COPY}, CONFIG.changed({
        "scores": ("dla",), "counts": (2,)}))
    assert chosen(maskings, TOP, 2) == [[(0, 0), (0, 1)]]
    assert all({layer for layer, _ in heads} == {0} for heads in chosen(maskings, MATCHED, 2))
    assert {*maskings["score"]} == {"", "dla"}


@pytest.fixture(scope="module")
def lm():
    return load_model("tiny-llama", device="cpu")


@pytest.fixture(scope="module")
def found(lm, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RMUTILS_CACHE", str(tmp_path_factory.mktemp("cache")))
        return masked_needles(lm, CONFIG)


def test_all_maskings_are_asked(found):
    """Whole, 1, 2, 5 heads; of 64 heads, 100 are not to be had. Controls for 2 heads."""
    newest = found.answers[found.answers["position"] == NEWEST]
    assert newest.groupby(["policy", "count"]).size().to_dict() == {
        (WHOLE, 0): 2, (TOP, 1): 2, (TOP, 2): 2, (TOP, 5): 2, (MATCHED, 2): 4, (ANYWHERE, 2): 2}
    every = found.answers[found.answers["position"] == EVERY]
    assert every.groupby(["policy", "count", "draw"]).size().to_dict() == {
        (WHOLE, 0, 0): 2, (TOP, 2, 0): 2, (MATCHED, 2, 0): 2}


def test_answers_at_every_position_are_those_of_a_masked_model(found, lm):
    needles = tuple(load_needles(CORPORA["world"] / "literal")[3:5])
    every = found.answers[found.answers["position"] == EVERY].merge(
        found.maskings, on=module.KEY)
    for (heads,), part in every.groupby(["heads"]):
        with mask_heads(lm, heads_in(heads)):
            expected = find_needles(lm, CONFIG.asked.changed({"needles": needles}))
        part = part.sort_values("needle")
        assert [*part["response"]] == [*expected["response"]]
        assert [*part["success"]] == [*expected["success"]]
    assert found.answers.query("policy == 'whole'")["success"].all()


def test_too_few_needles_are_refused(lm, tmp_path, monkeypatch):
    monkeypatch.setenv("RMUTILS_CACHE", str(tmp_path))
    with pytest.raises(UserError, match="18 needles .* after 3 .*literal has only 17"):
        masked_needles(lm, CONFIG.changed({"needles": 18}))


def test_a_result_names_its_plan_and_its_command(tmp_path, monkeypatch):
    monkeypatch.setenv("RMUTILS_CACHE", str(tmp_path))
    plan = real_models.real_models()
    how = {"label": "few", "command": "rmutils real-models masking tiny-llama"}
    with pytest.raises(NotStored, match="rmutils real-models masking tiny-llama"):
        masked_needles_stored("tiny-llama", CONFIG, plan, compute="never", **how)
    few = CONFIG.changed({"curve": (), "every_position": None, "anywhere": 0, "same_layers": 0})
    result, artifact = masked_needles_stored("tiny-llama", few, plan, **how)
    assert plan.deviations([artifact]) == []
    again, _ = masked_needles_stored("tiny-llama", few, plan, compute="never", **how)
    assert again.answers.equals(result.answers) and len(again.maskings) == 2


def test_heads_by_contributions_that_were_counted_otherwise_are_not_found(monkeypatch):
    """Families whose contributions were corrected have other keys, where a score uses them."""
    plan, keys = real_models.real_models(), {}
    for version in ({}, {"contributions": "2"}):
        monkeypatch.setattr(module, "contributions_version", lambda family, now=version: now)
        for make in (real_models.masking, real_models.which_heads):
            with pytest.raises(NotStored) as missing:
                masked_needles_stored("smollm2-135m", make("gemma3-270m").changed({
                    "seed": 7}), plan, label="", command="", compute="never")
            keys.setdefault(make, set()).add(str(missing.value))
    assert len(keys[real_models.masking]) == 1 and len(keys[real_models.which_heads]) == 2
