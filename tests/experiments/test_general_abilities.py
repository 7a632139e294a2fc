"""Differences and drift from a table whose answer is known."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from rmutils.book.chapters import general_abilities as module
from rmutils.book.chapters.general_abilities import (
    ALL,
    ability_table,
    at_a_constant,
    changes,
    drift_by_strategy,
    means_by_strategy,
)
from rmutils.stats import holm


def scored(strategy: str, seed: int, task: str, scores) -> pd.DataFrame:
    return pd.DataFrame({"strategy": strategy, "seed": seed, "task": task, "kind": "any",
                         "sample": range(len(scores)), "score": scores, "response": ""})


@pytest.fixture
def samples() -> pd.DataFrame:
    """60 samples of two tasks: `good` gains 30 points in one of them, `none` nothing anywhere."""
    rng = np.random.default_rng(3)
    before = {task: 100.0 * (rng.random(60) < 0.4) for task in ("one", "two")}
    parts = [scored("before", 0, task, scores) for task, scores in before.items()]
    for seed in range(3):
        for task, scores in before.items():
            better = scores.copy()
            if task == "one":
                better[np.flatnonzero(scores == 0)[seed : seed + 18]] = 100
            parts += [scored("good", seed, task, better), scored("none", seed, task, scores)]
    return pd.concat(parts, ignore_index=True)


def test_changes(samples):
    found = changes(samples, "before").set_index(["task", "strategy"])
    assert len(found) == 3 * 2 and (found["seeds"] == 3).all()
    assert found.loc[("one", "good"), "effect"] == pytest.approx(30)
    assert found.loc[("two", "good"), "effect"] == found.loc[("one", "none"), "effect"] == 0
    assert found.loc[(ALL, "good"), "effect"] == pytest.approx(15)
    assert found.loc[("one", "good"), "low"] > 0 and found.loc[(ALL, "good"), "low"] > 0
    per_task = found.drop(ALL)
    np.testing.assert_allclose(per_task["p_holm"], holm(per_task["p"]))
    assert per_task.loc[("one", "good"), "p_holm"] < 0.05 < per_task.loc[("two", "good"), "p_holm"]
    few = pd.concat([scored("before", 0, "one", [0, 0, 100]), scored("b", 0, "one", [100] * 3)])
    assert changes(few, "before")["high"].eq(100).all()  # no gain is more


def test_tasks_that_a_constant_answer_solves_as_well_have_no_room(samples):
    assert at_a_constant(samples, {"one": 0, "two": 0}) == []
    assert at_a_constant(samples, {"one": 25, "two": 38}) == ["two"]


def test_means(samples):
    found = means_by_strategy(samples).set_index(["strategy", "task"])
    for (strategy, task), row in found.iterrows():
        part = samples[(samples["strategy"] == strategy) & (samples["task"] == task)]
        assert row["value"] == pytest.approx(part["score"].mean())
        assert row["low"] <= row["value"] <= row["high"]
        assert row["seeds"] == (1 if strategy == "before" else 3)


def test_unscored_samples_are_counted_and_left_out():
    table = ability_table(scored("before", 0, "one", [100.0, np.nan, 0.0, 100.0]))
    row, = table.itertuples()
    assert (row.samples, row.unscored) == (3, 1) and row.value == pytest.approx(200 / 3)


def test_drift_of_each_strategy():
    """Longer passages weigh more; perplexities are of the mean over tokens."""
    rows = [("a", 0, 0, 10, 20.0, 30.0, 1.0, 2.0), ("a", 0, 1, 30, 90.0, 90.0, 3.0, 2.0),
            ("b", 0, 0, 10, 20.0, 20.0, 0.0, 0.0), ("b", 0, 1, 30, 90.0, 90.0, 0.0, 0.0)]
    drift = pd.DataFrame(rows, columns=["strategy", "seed", "passage", "tokens", "base_nats",
                                        "nats", "from_base", "from_trained"])
    found = drift_by_strategy(drift).set_index(["strategy", "measure"])["value"]
    assert found["a", "KL from the base model"] == pytest.approx(4 / 40)
    assert found["a", "KL from the trained model"] == pytest.approx(4 / 40)
    assert found["a", "perplexity before"] == pytest.approx(math.exp(110 / 40))
    assert found["a", "perplexity after"] == pytest.approx(math.exp(120 / 40))
    assert found["a", "change of the loss"] == pytest.approx(10 / 40)
    assert found["b", "perplexity after / before"] == 1 and found["b", "change of the loss"] == 0


def test_answers_lost_and_won_are_those_of_tasks_with_room(monkeypatch):
    """Its first run loses one right answer of `one` and wins two; `guessed` says nothing."""
    rows = pd.concat([
        scored("before", 0, "one", [100, 100, 0, 0, 0]), scored("before", 0, "guessed", [100, 0]),
        scored("retmask", 0, "one", [0, 100, 100, 100, 0]), scored("retmask", 0, "guessed", [0, 0]),
        scored("retmask", 1, "one", [0, 0, 0, 0, 0])], ignore_index=True)
    one = SimpleNamespace(name="stored")
    monkeypatch.setattr(module, "abilities", lambda model: SimpleNamespace(
        samples=rows, artifacts={("before", 0): one, ("retmask", 0): one}))
    monkeypatch.setattr(module, "without_room", lambda model: ("guessed",))
    assert module.answers_lost("m").found.value == 1
    assert module.answers_won("m").found.value == 2
