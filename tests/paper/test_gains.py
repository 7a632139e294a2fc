"""Gains: those of section 5.3 and of the paper's points by hand, those of table 6 by its digits."""

import itertools

import numpy as np
import pandas as pd
import pytest

from rmutils.book.claims.gains import general_gains, score_gains, sparsity_gains
from rmutils.paper import load_published_scores, load_tables


@pytest.fixture
def gains():
    return score_gains().set_index("quantity")[["value", "low", "high"]]


def test_printed_numbers_by_hand(gains):
    """40 heads of 1,024 gain 0.051, the others 0.001; the mean goes from 0.017 to 0.020."""
    assert gains["value"][:4].tolist() == pytest.approx(
        [0.003, (40 * 0.051 + 984 * 0.001) / 1024, 0.003 / 0.017, 2.04 / (2.04 + 0.984)])
    assert gains.index[:4].tolist() == [
        "gain of the mean", "gain of the mean from both groups", "relative gain of the mean",
        "share of the gain in masked heads"]
    assert score_gains()["source"].tolist() == [
        *["printed"] * 4, "published", *["printed and published"] * 2]
    low, high = gains.loc["relative gain of the mean", ["low", "high"]]
    assert (low, high) == pytest.approx((0.0195 / 0.0175 - 1, 0.0205 / 0.0165 - 1))


def test_range_of_the_share_holds_all_that_the_digits_allow(gains):
    corners = [40 * masked / (40 * masked + 984 * other) for masked, other in
               itertools.product((0.0505, 0.0515), (0.0005, 0.0015))]
    low, high = gains.loc["share of the gain in masked heads", ["low", "high"]]
    assert (low, high) == pytest.approx((min(corners), max(corners)))


def test_groups_before_come_from_the_published_scores(gains):
    """What both groups had before, and gained, adds up to the whole again."""
    scores = load_published_scores().query("model == 'Llama-3.1-8B-Instruct'")["mean"]
    top = 0.051 / gains.loc["relative gain of masked heads", "value"]
    rest = 0.001 / gains.loc["relative gain of other heads", "value"]
    assert 40 * top + 984 * rest == pytest.approx(scores.sum())
    assert gains.loc["share of the scores in masked heads", "value"] == pytest.approx(
        40 * top / scores.sum())
    assert top == pytest.approx(scores.nlargest(40).mean())


def test_gains_by_hand():
    table = sparsity_gains().set_index("model")
    # Table 1, Llama: 58.14 - 56.03, 56.92 - 54.14, 53.48 - 52.42, 53.15 - 51.65, 48.68 - 46.40
    assert table.loc["Llama-3.1-8B-Instruct", "gain"] == pytest.approx(
        (2.11 + 2.78 + 1.06 + 1.50 + 2.28) / 5)
    # Table 4, four lengths only: 46.69 - 46.53, 46.07 - 45.83, 43.09 - 42.41, 35.54 - 35.07
    assert table.loc["Olmo-3-7B-Think", "gain"] == pytest.approx((0.16 + 0.24 + 0.68 + 0.47) / 4)
    assert list(table.index) == list(load_tables().query(
        "source == 'en' and table in (1, 4)")["group"].unique())  # the order of the paper
    assert list(table.index[table["sparsity"].isna()]) == ["Olmo-3-7B-Instruct"]


@pytest.mark.parametrize("source, models", [("en", 4), ("ja", 3)])
def test_gains_are_those_of_the_table(source, models):
    found = general_gains(source)
    assert len(found) == 5 * models
    cells = load_tables().query("source == @source and table == 6").set_index(
        ["group", "column", "row"])["value"]
    for row in found.itertuples():
        before, after = (cells[row.model, row.benchmark, when] for when in ("Before", "After"))
        assert (row.before, row.after) == pytest.approx((100 * before, 100 * after))
        assert row.gain == pytest.approx(100 * (after - before))
        assert (row.low, row.high) == pytest.approx((row.gain - 1, row.gain + 1))


def test_chance_as_coins_fall():
    """GPQA of Llama-3.1: 25 and 33 of a hundred, 198 questions."""
    found = general_gains().set_index(["model", "benchmark"])
    row = found.loc["Llama-3.1-8B-Instruct", "GPQA"]
    assert row["questions"] == 198
    rng = np.random.default_rng(0)
    gains = 100 * (rng.binomial(198, 0.33, 40000) - rng.binomial(198, 0.25, 40000)) / 198
    assert row["chance"] == pytest.approx(1.96 * gains.std(), rel=0.02)
    assert row["chance"] == pytest.approx(196 * ((0.33 * 0.67 + 0.25 * 0.75) / 198) ** 0.5)
    mt_bench = found.xs("MT-Bench", level="benchmark")
    assert pd.isna(mt_bench["chance"]).all() and pd.isna(mt_bench["questions"]).all()
