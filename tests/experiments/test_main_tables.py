"""Tables of gains: complete strategies only, differences by hand."""

import math
from types import SimpleNamespace

import pandas as pd
import pytest

from rmutils.book.chapters.main_tables import experiment as main_tables
from rmutils.book.chapters.main_tables.experiment import able_to_differ, evaluated, gains, levels
from rmutils.book.chapters.main_tables.findings import counted
from rmutils.core.errors import NotStored
from rmutils.evaluation.helmet import EvaluateConfig

DATASETS = {"Recall": "needle_rivals", "RAG": "document_qa"}


def scores(right: float) -> pd.DataFrame:
    """Two categories, two lengths, three texts with two questions each; `right` points for all."""
    rows = [{"category": category, "dataset": dataset, "length": length, "sample": 2 * text + i,
             "cluster": text, "metric": "m", "score": right, "unscored": False}
            for category, dataset in DATASETS.items() for length in (256, 512)
            for text in range(3) for i in range(2)]
    return pd.DataFrame(rows)


@pytest.fixture
def stored(monkeypatch):
    """Scores by the name of a model; what is not in here is not stored."""
    have = {"tiny": 20.0, "a0": 30.0, "a1": 50.0, "b0": 10.0}

    def evaluate_stored(name, config, *, compute):
        assert compute == "never"
        if name not in have:
            raise NotStored(f"{name} is not stored")
        return scores(have[name]), name

    def stored_runs(model, configs):
        return [SimpleNamespace(
            training=f"{c.strategy}{c.seed}", pairs="123", curve="12",
            artifact=SimpleNamespace(manifest={"config": {"seed": c.seed}})) for c in configs], []

    plan = [SimpleNamespace(strategy=strategy, seed=seed) for strategy in "ab" for seed in (0, 1)]
    monkeypatch.setattr(main_tables, "evaluate_stored", evaluate_stored)
    monkeypatch.setattr(main_tables, "stored_runs", stored_runs)
    monkeypatch.setattr(main_tables, "planned_runs", lambda model: plan)
    return have


def test_a_strategy_that_lacks_a_seed_is_left_out(stored):
    found = evaluated("tiny", EvaluateConfig(), ["a", "b"])
    assert set(found.scores["strategy"]) == {"before", "a"}
    assert found.artifacts == ("tiny", "a0", "a1") and found.missing == ("rmutils evaluate b1",)
    assert found.sizes.value_counts().to_dict() == {("a", 3, 2): 2, ("b", 3, 2): 2}


def test_nothing_is_shown_without_the_model_before(stored):
    del stored["tiny"]
    found = evaluated("tiny", EvaluateConfig(), ["a"])
    assert found.scores.empty and found.missing == ("rmutils evaluate tiny",)


def test_gains_by_hand(stored):
    """30 and 50 after 20: a gain of 20, the same at each length and in each category."""
    found = evaluated("tiny", EvaluateConfig(), ["a"])
    whole = gains(found)
    assert whole["effect"].tolist() == [20.0] and whole["seeds"].tolist() == [2]
    parts = gains(found, ["length", "category"])
    assert set(zip(parts["length"], parts["category"], strict=True)) == {
        (256, "Recall"), (512, "Recall"), (256, "RAG"), (512, "RAG")}
    assert parts["effect"].tolist() == [20.0] * 4


def test_levels_say_what_is_missing(stored):
    table = levels(evaluated("tiny", EvaluateConfig(), ["a"]))
    overall = table[table["name"] == "overall"].set_index(["strategy", "length"])
    assert overall["value"].to_dict() == {
        ("before", 256): 20, ("before", 512): 20, ("a", 256): 40, ("a", 512): 40}
    assert all("Summ" in missing for missing in overall["missing"])


def table(*rows, **columns):
    return pd.DataFrame(rows, columns=["effect", "low", "high", "p_holm"]).assign(**columns)


def test_an_interval_alone_shows_nothing():
    tables = [table((2, 1, 3, 0.01), (-2, -3, -1, 0.2)), table((0.5, -1, 2, 0.01))]
    assert counted(tables) == {"better": 1, "worse": 0, "above": 1, "below": 1, "all": 3}


def test_categories_that_could_show_nothing_are_not_counted():
    """0.02 becomes 0.04 by Holm's method over the two that are left, whatever it was before."""
    less = table((2, 1, 3, 1), (2, 1, 3, 0.01), (2, 1, 3, 0.01), (0, -1, 1, 1),
                 category=["Recall", "Re-rank", "Summ", "RAG"], p=[0.02, 0.01, math.nan, 0.5])
    able = able_to_differ(less, ["Re-rank"])
    assert able["category"].tolist() == ["Recall", "RAG"]
    assert able["p_holm"].tolist() == [0.04, 0.5] and counted([able])["better"] == 1


def test_an_answer_with_two_metrics_counts_once(monkeypatch):
    """Of two questions, RetMask changes the second one's answer: by one metric for the better."""
    def rows(strategy, *scores):
        return [{"dataset": "d", "length": 9, "sample": sample, "metric": metric, "seed": 0,
                 "strategy": strategy, "score": score, "response": f"{strategy} {sample}"}
                for sample, pair in enumerate(scores)
                for metric, score in zip("ab", pair, strict=True)]

    found = pd.DataFrame(rows("before", (1, 2), (3, 4)) + rows("retmask", (1, 2), (3, 5)))
    asked = [SimpleNamespace(support=[], after=f"{i}?", golds=()) for i in range(2)]
    for name, value in (("load_model", lambda name: None), ("counter", lambda lm: None),
                        ("DATASETS", {"d": None}), ("prompter_of", lambda *_: None),
                        ("questions", lambda prompter, count: [
                            SimpleNamespace(question=one) for one in asked[:count]])):
        monkeypatch.setattr(main_tables, name, value)
    found = main_tables.first_changed(
        main_tables.Evaluated("m", found, (), (), pd.DataFrame()), EvaluateConfig(), "d")
    assert (found.better, found.worse, found.all) == (1, 0, 2)
    assert (found.question, found.answers["retmask"]) == ("1?", "retmask 1")
