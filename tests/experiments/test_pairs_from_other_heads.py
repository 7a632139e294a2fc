"""Trainings on pairs from the heads of other scores: what is compared, and what the plan says."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from rmutils.book.chapters.which_heads.pairs_from_other_heads import (
    PairsFromOtherHeads,
    pairs_from_other_heads,
    planned,
)
from rmutils.book.experiments.planned_runs import MATCHED, RETMASK
from rmutils.core.experiment import load_plan
from rmutils.heads.detection import detect_stored

PLAN = load_plan("pairs_from_other_heads")
PATCHING = "patching", RETMASK


@pytest.fixture(scope="module")
def stored() -> PairsFromOtherHeads:
    return pairs_from_other_heads()


def test_as_many_heads_are_masked_whatever_score_chooses_them(stored):
    configs = [run.config for run in planned(PLAN)]
    assert [(c.strategy, c.detect.score, c.seed) for c in configs] == [
        *product([RETMASK, MATCHED], ["copy", "locos", "patching"], range(1, 6))]
    chosen = [detect_stored("smollm2-135m", config.detect, compute="never")[0].select(
        tau=config.tau) for config in configs[:15:5]]
    assert [len(heads) for heads in chosen] == [23] * 3
    by_score = stored.heads()
    assert {*by_score["copy"]} == {*chosen[0]} and {*by_score["patching"]} == {*chosen[2]}
    assert stored.in_common() == {("copy", "patching"): len({*chosen[0]} & {*chosen[2]})}


def test_the_difference_of_needles_found_and_its_p(stored):
    """By all 4,096 signs of the twelve needles, one after the other."""
    row = stored.needles().query("primary").iloc[0]
    seeds = [seed for *arm, seed in stored.trainings if tuple(arm) == PATCHING]
    assert row["seeds"] == len(seeds)
    after = {(score, seed): stored.trainings[score, RETMASK, seed].after.cases.groupby("needle")[
        "success"].mean() for score in ("copy", "patching") for seed in seeds}
    gained = np.mean([after["patching", seed] - after["copy", seed] for seed in seeds], axis=0)
    assert row["value"] == pytest.approx(gained.mean()) and row["low"] < row["value"] < row["high"]
    sums = np.array([np.dot(signs, gained) for signs in product([-1, 1], repeat=12)])
    p = np.mean(abs(sums) >= abs(gained.sum()) - 1e-9)
    assert row["p"] == pytest.approx(min(1, 2 * p))  # locos, which is missing, is of the family


def test_a_comparison_has_the_seeds_of_both_arms(stored):
    first = next(seed for *arm, seed in stored.trainings if tuple(arm) == PATCHING)
    fewer = {key: training for key, training in stored.trainings.items()
             if key[1] == RETMASK and (key[0] == "copy" or key[2] == first)}
    some = replace(stored, trainings=fewer)
    assert some.needles()["seeds"].tolist() == [1]
    assert some.by_seed().set_index("heads by").loc["patching"].isna().sum() == 4
    none = replace(stored, trainings={key: one for key, one in fewer.items() if key[0] == "copy"})
    assert none.needles().empty and none.planned - len(none.trainings) == 25


def test_results_from_another_machine_are_a_deviation(stored):
    """The controls by copy are from a processor, and so are the detections after patching."""
    elsewhere = {key for key, one in stored.trainings.items()
                 if "NVIDIA" not in one.artifact.manifest["environment"]["hardware"]}
    assert {score for score, *_ in elsewhere} == {"copy", "patching"}
    (said,) = stored.deviations
    seeds = ", ".join(str(seed) for *arm, seed in stored.trainings if tuple(arm) == PATCHING)
    assert f"RetMask by patching, seeds {seeds}" in said and "RetMask by copy" not in said
    primary = stored.needles().query("primary").iloc[0]
    assert primary["apart"] == primary["seeds"]  # copy on an accelerator, patching on a processor
    alike = replace(stored, trainings={
        key: replace(one, artifact=stored.artifacts[0]) for key, one in stored.trainings.items()})
    assert not alike.needles()["apart"].any()


def test_what_retmask_changes_in_further_seeds(stored):
    score, found = stored.again()
    own = [one for (*arm, _), one in stored.trainings.items() if arm == ["copy", RETMASK]]
    shares = [one.after.cases["success"].mean() for one in own]
    before = stored.before.cases["success"].mean()
    assert found.value == pytest.approx(np.mean(shares) - before) and score.low > 0
