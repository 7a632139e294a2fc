"""RetMask against controls of the same layers: what is compared, and what the plan's rule says."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from rmutils.book.chapters.training_effect.layer_matched_training import LayerMatchedTraining
from rmutils.book.experiments.planned_runs import trainings
from rmutils.core.experiment import load_plan
from rmutils.stats import interval

PLAN = load_plan("layer_matched_training")


@pytest.fixture(scope="module")
def result() -> LayerMatchedTraining:
    """Two seeds of stored runs on tiny-llama stand in for those on SmolLM2."""
    own, control = (trainings("tiny-llama", name)[:2] for name in ("retmask", "non-retrieval-mask"))
    return LayerMatchedTraining(list(zip(own, control, strict=True)), 3)


def test_the_effect_is_the_mean_difference_over_cases_that_both_solve(result):
    by_seed = []
    for own, control in result.runs:
        solved = [run.after.cases["success"].to_numpy(bool) for run in (own, control)]
        ours, theirs = (run.after.runs[(solved[0] & solved[1])[mine]]
                        for run, mine in zip((own, control), solved, strict=True))
        layers, heads = np.array(own.heads).T
        by_seed.append((ours - theirs)[:, layers, heads].mean())
    effects = result.effects().set_index("what")
    assert effects.loc["retrieval heads", "value"] == pytest.approx(np.mean(by_seed))
    assert list(effects.index) == ["retrieval heads", "other heads", "needles found"]


def test_arms_from_different_machines_are_a_deviation(result):
    (own, control), *_ = result.runs
    machine = dict(own.artifact.manifest["environment"], hardware="an abacus")
    other = replace(control, artifact=SimpleNamespace(
        manifest=control.artifact.manifest | {"environment": machine}))
    assert result.made_elsewhere() == 0
    assert LayerMatchedTraining([(own, other)], 3).made_elsewhere() == 1


def test_needles_found_have_the_interval_of_the_books_policy(result):
    """As `rmutils.stats.interval` gives it for the same cases, but for the draws."""
    gained = np.stack([own.after.cases["success"].to_numpy(float)
                       - control.after.cases["success"].to_numpy(float)
                       for own, control in result.runs], axis=1)
    needles = result.runs[0][0].after.cases["needle"].to_numpy()
    found = result.effects().set_index("what").loc["needles found", ["value", "low", "high"]]
    assert found.to_list() == pytest.approx(interval(gained, needles, seeds=True), abs=0.03)
