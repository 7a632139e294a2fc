"""Larger models: which heads, which data sets, and differences of answers counted by hand."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t, ttest_1samp

from rmutils.book.chapters.training_effect import real_training
from rmutils.book.chapters.training_effect.real_training import RealTraining
from rmutils.book.experiments import planned_runs as planned
from rmutils.book.experiments import real_tasks
from rmutils.book.experiments.planned_runs import BEFORE, MATCHED, RETMASK
from rmutils.book.experiments.real_tasks import (
    CONTROL,
    TOP,
    WHOLE,
    States,
    by_question,
    difference,
    heads_without,
    measured,
)
from rmutils.core.errors import NotStored, UserError
from rmutils.core.experiment import load_plan
from rmutils.heads.scores import HeadScores
from tests.experiments.test_half_masked import run, scores

PLAN = load_plan("real_models").content


def test_states(monkeypatch):
    """Twelve per cent of the heads, and the same number of others of their layers."""
    rng = np.random.default_rng(1)
    cases = pd.DataFrame({"needle": [0, 1], "success": [True, True]})
    found = HeadScores(rng.random((2, 5, 10)) / 10, "m", np.array([0, 1]), cases)
    found.runs[:, 2, :8] += 0.05  # above the threshold, more than are masked
    monkeypatch.setattr(real_tasks, "detect_stored", lambda model, config, **_: (found, None))
    top, control = (heads_without("m", state) for state in (TOP, CONTROL))
    order = np.argsort(-found.mean.ravel())[:6]
    assert {10 * i + j for i, j in top} == {*order} and heads_without("m", WHOLE) == ()
    reached = {(i, j) for i in range(5) for j in range(10) if found.mean[i, j] >= 0.1}
    assert len(control) == len(top) and not ({*top} | reached) & {*control}
    assert real_tasks.displaced("m") == len(top) - len(
        [i for i, _ in control if i in {layer for layer, _ in top}])


def test_data_sets_with_room_are_measured(monkeypatch):
    table = pd.DataFrame([(name, i, metric, value) for name, values in {
        "a": (0, 0), "b": (20, 0), "c": (100, 80), "d": (100, 100)}.items()
        for i, value in enumerate(values) for metric in "xy"],
        columns=["dataset", "sample", "metric", "score"])
    monkeypatch.setattr(real_tasks, "evaluate_stored", lambda *given, **_: (table, None))
    assert measured("m") == ("b", "c")
    table["score"] = 0
    with pytest.raises(UserError, match="on no data set"):
        measured("m")


def answers(values: list[list[float]]) -> pd.DataFrame:
    return by_question(pd.DataFrame([
        (f"set {k}", i, metric, value) for k, row in enumerate(values)
        for i, value in enumerate(row) for metric in "xy"],
        columns=["dataset", "sample", "metric", "score"]))


def test_differences_are_means_of_data_sets():
    one, other = answers([[100, 0, 50], [10] * 9]), answers([[0, 0, 50], [10] * 9])
    found = difference([(one, other)], "score", "sample", "dataset")
    assert found.value == pytest.approx((100 / 3 + 0) / 2) and found.low <= found.value
    both = difference([(one, other), (other, one)], "score", "sample", "dataset")
    assert both.value == 0 and both.p == 1
    with pytest.raises(UserError, match="other questions"):
        difference([(one, other[::-1])], "score", "sample")


def test_a_question_that_three_tasks_put_is_drawn_once():
    """The mean counts each task; the interval is Student's over questions."""
    rng = np.random.default_rng(0)
    gaps = rng.normal(5, 30, 60)
    names = ("multiple choice", "letters", "written letters")
    one = pd.concat([pd.DataFrame({"task": name, "sample": range(60), "score": gaps})
                     for name in names])
    zero = one.assign(score=0.0)
    found = difference([(one, zero)], "score", "sample", "task")
    half = t.ppf(0.975, 59) * gaps.std(ddof=1) / np.sqrt(60)
    assert found.value == pytest.approx(gaps.mean()) and found.clusters == 60
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.06)
    assert found.p == pytest.approx(ttest_1samp(gaps, 0).pvalue, abs=0.02)
    other = pd.DataFrame({"task": "arithmetic", "sample": range(5), "score": 40.0})
    with_another = pd.concat([other, one])
    assert difference([(with_another, with_another.assign(score=0.0))], "score", "sample",
                      "task").value == pytest.approx((40 + 3 * gaps.mean()) / 4)
    assert difference([(one, zero), (one, zero)], "score", "sample", "task").value == pytest.approx(
        gaps.mean())


def test_states_are_compared_question_by_question():
    states = States({WHOLE: answers([[100, 100], [50] * 4]), TOP: answers([[0, 100], [30] * 4]),
                     CONTROL: answers([[100, 100], [40] * 4])}, "dataset", [])
    effects = states.effects().set_index(["what", "of"])["value"]
    assert effects["same layers minus top heads", "mean"] == pytest.approx((50 + 10) / 2)
    assert effects["top heads minus whole", "set 0"] == -50
    means = states.means().set_index(["of", "state"])["value"]
    assert means["mean", WHOLE] == 75 and means["set 1", CONTROL] == 40


@pytest.fixture
def result() -> RealTraining:
    """RetMask raises the heads that it masks by 0.2, and finds four of twelve needles more."""
    before, runs, outcomes = scores(0), {}, {}
    for seed in (1, 2):
        own = run(scores(seed, {(0, 1): 0.2, (1, 2): 0.2}), [(0, 1), (1, 2)])
        control = run(scores(seed + 5), [(0, 0), (1, 1)])
        for arm, one in ((RETMASK, own), (MATCHED, control)):
            one.artifact = SimpleNamespace(manifest={"config": {"seed": seed}})
            one.before, runs[arm, seed] = before, one
            success = [arm == RETMASK] * 4 + [True] * 8
            outcomes["needles", arm, seed] = pd.DataFrame(
                {"needle": range(12), "success": success})
    outcomes["needles", BEFORE, 0] = pd.DataFrame({"needle": range(12), "success": [True] * 12})
    return RealTraining(runs, outcomes, [], [])


def test_scores_in_cases_that_both_answer(result):
    found = result.scores().set_index(["against", "seed"])
    gaps = []
    for own, control in result.pairs:
        yes = [m.cases["success"].to_numpy() for m in (own.after, control.after)]
        both = yes[0] & yes[1]
        values = [m.runs[both[y]][:, [0, 1], [1, 2]].mean(1)
                  for m, y in zip((own.after, control.after), yes, strict=True)]
        gaps.append(values[0] - values[1])
    assert found.loc[(MATCHED, "1"), "value"] == pytest.approx(gaps[0].mean())
    assert found.loc[(MATCHED, "both"), "value"] == pytest.approx(np.concatenate(gaps).mean())
    assert found.loc[(MATCHED, "both"), "low"] > 0.1
    assert {seed for _, seed in found.index} == {"1", "2", "both"}


def test_needles_in_points(result):
    found = result.answers().set_index(["outcome", "against", "seed"])
    assert found.loc[("needles", MATCHED, "both"), "value"] == pytest.approx(100 / 3)
    assert found.loc[("needles", BEFORE, "1"), "value"] == 0
    assert found.loc[("needles", MATCHED, "2"), "p"] == pytest.approx(2 / 16)


def test_first_needle_that_is_found_before_and_lost_after():
    asked = real_training.asked_needles().needles

    def answers(success):
        return pd.DataFrame({"needle": [0, 1, 1, 2], "success": success,
                             "response": [f"{ok} {i}" for i, ok in enumerate(success)]})

    arms = {BEFORE: [0, 1, 1, 1], RETMASK: [0, 1, 0, 0], MATCHED: [1, 1, 1, 0]}
    tables = {("needles", arm, 0 if arm == BEFORE else 1): answers([*map(bool, found)])
              for arm, found in arms.items()}
    lost = RealTraining({}, tables, [], []).first_lost()
    assert (lost.needle, lost.question) == (asked[1].needle, asked[1].question)
    assert (lost.before, lost.after, lost.control) == ("True 2", "False 2", "True 2")
    tables["needles", RETMASK, 1] = tables["needles", BEFORE, 0]
    assert RealTraining({}, tables, [], []).first_lost() is None


def test_levels_of_each_model(result):
    found = result.levels().set_index(["outcome", "arm", "seed"])
    share = found.loc["needles found, %", "value"]
    assert share.to_dict() == {
        ("RetMask", 1): 100, ("RetMask", 2): 100, ("before training", 0): 100,
        ("other heads masked", 1): pytest.approx(200 / 3),
        ("other heads masked", 2): pytest.approx(200 / 3)}
    own, _ = result.pairs[0]
    yes = own.after.cases["success"].to_numpy()
    assert found.loc[("copy score of the masked heads", "RetMask", 1), "value"] == pytest.approx(
        own.after.runs[:, [0, 1], [1, 2]].mean()) and yes.sum() == len(own.after.runs)


def test_what_is_missing_is_named(monkeypatch):
    def never(*given, **_):
        raise NotStored("no")

    monkeypatch.setattr(planned, "run_retmask", never)
    monkeypatch.setattr(real_training, "OUTCOMES", {"needles": never})
    found = real_training.real_training()
    assert len(found.missing) == 4 and not found.outcomes
    assert all(c.startswith("rmutils retmask qwen2.5-coder-0.5b") for c in found.missing)


def test_abilities_without_programs_are_found(monkeypatch):
    """A machine without a sandbox skips the programs, and stores the rest under their names."""
    def stored(model, config, *, base, compute):
        if "code" in (config.tasks or ["code"]):
            raise NotStored("no")
        return config.tasks, compute

    monkeypatch.setattr(real_tasks, "evaluate_general_stored", stored)
    tasks, compute = real_tasks.abilities("m")
    assert "arithmetic" in tasks and "code" not in tasks and compute == "never"
