"""Averages against plain arithmetic, and what they say of what is missing."""

import numpy as np
import pandas as pd
import pytest

from rmutils.evaluation.helmet.averages import averages, draws, samples_of
from rmutils.evaluation.helmet.suite import CATEGORIES, DATASETS, SUITE, SUITES
from rmutils.stats import expansion


@pytest.fixture
def table():
    """Random scores; two lengths, 12 samples of 4 texts."""
    rng = np.random.default_rng(0)
    return pd.DataFrame([
        {"category": d.category, "dataset": d.name, "length": length, "sample": i,
         "cluster": i // 3, "metric": metric, "score": rng.uniform(0, 100), "unscored": False}
        for length in (512, 2048) for d in map(DATASETS.get, SUITES["helmet"]) for i in range(12)
        for metric in d.metrics])


def value(found, name, length=512, column="value"):
    return found.query("name == @name and length == @length")[column].item()


def test_means_of_means(table):
    found = averages(table)
    part = table[table["length"] == 2048]
    categories = []
    for category, names in SUITE.items():
        of_data = []
        for name in names:
            metrics = part[part["dataset"] == name].groupby("metric")["score"].mean()
            assert value(found, name, 2048) == pytest.approx(metrics.mean())
            of_data.append(metrics.mean())
        assert value(found, category, 2048) == pytest.approx(np.mean(of_data))
        categories.append(np.mean(of_data))
    assert value(found, "overall", 2048) == pytest.approx(np.mean(categories))
    six = part[part["category"] == "Cite"].groupby(["dataset", "metric"])["score"].mean()
    assert len(six) == 6 and value(found, "Cite", 2048) == pytest.approx(six.mean())
    assert (found["missing"] == "").all()
    assert value(found, "overall", 2048, "samples") == 12 * len(SUITES["helmet"])
    assert value(found, "overall", 2048, "texts") == 4 * len(SUITES["helmet"])
    assert value(found, "choice", column="texts") == 4
    assert found[found["level"] == "category"]["name"].tolist() == [*CATEGORIES] * 2
    assert found[found["level"] == "overall"]["name"].tolist() == ["overall"] * 2
    assert len(found[found["level"] == "data set"]) == 2 * len(SUITES["helmet"])


@pytest.mark.filterwarnings("error")
def test_what_is_missing_is_named(table):
    """A category without data, one without a part of it, and one without scores."""
    left = table[(table["category"] != "RAG") & (table["dataset"] != "choice")].copy()
    left.loc[left["dataset"] == "summary", ["score", "unscored"]] = np.nan, True
    found = averages(left)
    assert value(found, "overall", column="missing") == "RAG, choice, Summ"
    assert value(found, "LongQA", column="missing") == "choice"
    rest = [value(found, name) for name in CATEGORIES if name not in ("RAG", "Summ")]
    assert value(found, "overall") == pytest.approx(np.mean(rest))
    assert value(found, "LongQA") == pytest.approx(np.mean(
        [value(found, "free_answer"), value(found, "text_hops")]))
    assert value(found, "summary", column="unscored") == 12
    assert np.isnan(value(found, "summary")) and "Summ" not in set(found["name"])


def test_what_is_not_of_the_suite(table):
    """A data set of others counts in its category; a category of others has a mean of its own."""
    own = table[table["dataset"] == "free_answer"].assign(dataset="own", score=50.0)
    odd = own.assign(dataset="odd", category="Odd", score=7.0)
    found, before = averages(pd.concat([table, own, odd])), averages(table)
    many, old = len(SUITE["LongQA"]), value(before, "LongQA")
    new = (many * old + 50) / (many + 1)
    assert (value(found, "Odd"), value(found, "LongQA")) == pytest.approx((7, new))
    assert value(found, "overall") == pytest.approx(
        value(before, "overall") + (new - old) / len(SUITE))


def test_unscored_samples_are_left_out_not_zero(table):
    hit = (table["dataset"] == "free_answer") & (table["sample"] < 5)
    table.loc[hit, ["score", "unscored"]] = np.nan, True
    found = averages(table)
    rest = table[(table["dataset"] == "free_answer") & (table["length"] == 512)]
    assert value(found, "free_answer") == pytest.approx(rest["score"].dropna().mean())
    assert value(found, "free_answer", column="unscored") == 5
    assert value(found, "overall", column="unscored") == 5
    assert value(found, "free_answer", column="low") < value(found, "free_answer") < \
        value(found, "free_answer", column="high")


def test_intervals_draw_whole_texts(table):
    """With all samples of a text alike, the interval is that of the means of four texts."""
    part = table.query("dataset == 'document_qa' and length == 512").copy()
    levels = np.array([0.0, 20, 60, 100])
    part["score"] = levels[part["cluster"]]
    values = draws(part, resamples=20_000)["document_qa"]
    assert values[0] == levels.mean()
    assert values[1:].std() == pytest.approx(expansion(4) * levels.std() / 2, rel=0.03)
    part["cluster"] = part["sample"]
    alone = draws(part, resamples=20_000)["document_qa"]
    assert alone[1:].std() == pytest.approx(expansion(12) * levels.std() / np.sqrt(12), rel=0.03)
    part["cluster"] = 0
    assert np.isnan(averages(part)[["low", "high"]].to_numpy()).all()


def test_draws_are_paired_between_models_and_independent_between_data_sets(table):
    part = table[table["length"] == 512]
    better = part.assign(score=part["score"] + 7)
    one, two = draws(part), draws(better)
    for name in one:
        np.testing.assert_allclose(two[name] - one[name], 7)
    firm = np.corrcoef([values[1:] for values in one.values()])
    assert np.abs(firm - np.eye(len(firm))).max() < 0.1


def test_samples_have_one_score_each_and_names_of_their_own(table):
    found = samples_of(table)
    keys = ["category", "dataset", "length", "sample", "cluster"]
    wanted = table.groupby(keys, sort=False)["score"].mean().reset_index()
    np.testing.assert_allclose(found["score"], wanted["score"])
    assert found["stratum"].equals(wanted["category"]) and found["length"].equals(wanted["length"])
    assert found["sample"].is_unique and found["sample"][0] == f"{wanted['dataset'][0]} 512 0"
    assert found["cluster"].nunique() == 4 * len(SUITES["helmet"])
    assert found["cluster"][0] == f"{wanted['dataset'][0]} 0"
