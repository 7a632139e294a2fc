"""Curves of a table that can be worked out by hand."""

import numpy as np
import pandas as pd
import pytest

from rmutils.book.experiments.under_variants import changes, levels, perplexities

RIGHT = {  # variant -> a row per question: right at places 0, 0.5, 1
    "plain": [(1, 0, 1), (1, 0, 1), (1, 0, 0), (1, 1, 1)],
    "flat": [(1, 1, 1), (1, 1, 1), (1, 1, 0), (1, 1, 1)]}


@pytest.fixture
def answers():
    return pd.DataFrame([
        {"variant": name, "length": 256, "question": i, "place": place, "correct": float(right)}
        for name, rows in RIGHT.items() for i, row in enumerate(rows)
        for place, right in zip((0, 0.5, 1), row, strict=True)])


def test_levels_by_place(answers):
    found = levels(answers, "correct", ["place"]).set_index(["variant", "place"])
    assert found.loc["plain", "value"].tolist() == [1, 0.25, 0.75]
    assert found.loc["plain", "samples"].tolist() == [4, 4, 4]
    assert found.loc[("plain", 0), ["low", "high"]].tolist() == [1, 1]  # all alike
    low, high = found.loc[("plain", 0.5), ["low", "high"]]
    assert low == 0 and 0.5 <= high <= 1
    whole = levels(answers, "correct").set_index("variant")["value"]
    assert whole.tolist() == pytest.approx([8 / 12, 11 / 12])


def test_changes_are_paired(answers):
    """Three of four questions gain one of three places."""
    row, = changes(answers, "correct").itertuples()
    assert row.variant == "flat" and row.effect == pytest.approx(3 / 12)
    assert (row.samples, row.clusters) == (12, 4) and np.isnan(row.p)  # p is 1/8 at least
    shuffled = changes(answers.sample(frac=1, random_state=0), "correct")
    assert shuffled["effect"].item() == pytest.approx(row.effect)


def test_perplexities_by_hand():
    texts = pd.DataFrame({"variant": ["plain"] * 3 + ["odd"] * 3, "question": [0, 1, 2] * 2,
                          "nats": [1.0, 2, 3, 1.1, 2.1, 3.1]})
    found = perplexities(texts).set_index("variant")
    assert found["value"].tolist() == pytest.approx([np.exp(2), np.exp(2.1)])
    assert found.loc["plain", ["change", "change_low", "change_high"]].tolist() == [0, 0, 0]
    # every text rises by as much, so nothing is left to chance
    assert found.loc["odd", ["change", "change_low", "change_high"]].tolist() == pytest.approx(
        [np.expm1(0.1)] * 3)
