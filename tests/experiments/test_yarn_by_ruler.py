"""RULER with YaRN and without it: the planned runs, one of them small and stored, sums by hand."""

import pandas as pd
import pytest

from rmutils.attention.variants import Plain
from rmutils.book.chapters.olmo3_recipe import yarn_by_ruler as experiment
from rmutils.book.chapters.olmo3_recipe.yarn_by_ruler import (
    TRAINED,
    YARN,
    differences,
    kind,
    means,
    planned,
    ruler_scores,
)
from rmutils.core.experiment import Plan, load_plan
from rmutils.corpora.ruler import TASKS
from rmutils.longcontext.extension import Extended

PLAN = load_plan("ruler")


def test_runs_are_those_of_the_plan():
    runs = [*planned(PLAN)]
    assert [(run.model, run.arm) for run in runs] == [
        (model, arm) for model in ("tiny-olmo3", "smollm2-135m") for arm in (TRAINED, YARN)]
    for run in runs:
        own = PLAN.content["models"][run.model]
        assert run.evaluate.datasets == tuple(task.name for task in TASKS)
        assert run.evaluate.lengths == tuple(own["lengths"])
        assert run.evaluate.variant == (
            Plain() if run.arm == TRAINED else Extended(trained=own["trained"], factor=8))
    assert {kind(task.name) for task in TASKS} == {"needles", "variables", "words", "documents"}


def test_stored_and_collected(cache, monkeypatch):
    small = Plan("small", "0123456789abcdef", PLAN.content | {
        "tasks": "qa_1",
        "models": {"tiny-olmo3": {"lengths": [300], "samples": 2, "trained": 640}}})
    monkeypatch.setattr(experiment, "RULER", experiment.RULER.by_plan(small))
    table, runs = ruler_scores()
    assert table is None and len(runs.missing) == 2
    table, runs = ruler_scores("auto")
    assert not runs.missing and len(table) == 4 and {*table["kind"]} == {"documents"}
    assert {*table["question"]} == {"qa_1 0", "qa_1 1"}
    assert len(differences(table)) == 1


def by_hand(**gains):
    """Ten questions at two lengths; a model as trained has 30 and 50 points, YaRN `gains` more."""
    return pd.DataFrame([
        {"model": model, "arm": arm, "question": f"q{i}", "length": length, "kind": "needles",
         "score": 20 + 10 * length + (gain if arm == YARN else 0) * (1 if i < 9 else 2)}
        for model, gain in gains.items() for arm in (TRAINED, YARN) for i in range(10)
        for length in (1, 3)])


def test_scores_and_differences():
    table = by_hand(a=20, b=-20)
    scores = means(table).set_index(["model", "arm"])["value"]
    assert scores["a", TRAINED] == 40 and scores["a", YARN] == pytest.approx(62)
    assert means(table, "length").query("model == 'a' and arm == 'YaRN'")["value"].tolist() == [
        pytest.approx(52), pytest.approx(72)]
    found = differences(table).set_index("model")
    assert found.loc["a", "value"] == pytest.approx(22) and found.loc["a", "low"] > 0
    assert found.loc["b", "value"] == pytest.approx(-22) and found.loc["b", "high"] < 0
    assert (found["questions"] == 10).all() and (found["answered"] == 1).all()
    assert (found["p_holm"] == found["p"].min() * 2).all() and not found["floor"].any()


def test_floor_and_one_arm_alone():
    low = by_hand(a=1).assign(score=lambda table: table["score"] / 10)
    assert differences(low)["floor"].all()
    assert differences(low[low["arm"] == TRAINED]).empty
