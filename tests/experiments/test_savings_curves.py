"""Lines and figures of what is saved, worked out by hand."""

import pandas as pd
import pytest

from rmutils.book.chapters.share_attention.savings_curves import (
    along,
    by_half,
    medians,
    memory,
    ratios,
    same_as,
    tokens_kept,
)
from rmutils.stats import expansion


def test_medians_by_hand():
    table = pd.DataFrame({
        "question": [0, 1, 2] * 2, "variant": ["plain"] * 3 + ["fast"] * 3,
        "seconds": [1.0, 4, 10, 0.5, 1, 9]})
    found = ratios(table, "seconds").set_index("variant")
    assert found.loc["plain", ["value", "low", "high"]].tolist() == [1, 1, 1]
    # medians drawn from three rounds lie between 0.25 and 0.9; no cost is below 0
    assert found.loc["fast", ["value", "low", "high"]].tolist() == pytest.approx(
        [0.5, 0, 0.5 + 0.4 * expansion(3)])
    assert medians(table, "seconds")["value"].tolist() == [4, 1]


def test_lines_and_halves_by_hand():
    right = {"plain": [1, 1, 0, 1], "0": [0, 1, 0, 0], "1": [1, 1, 0, 0], "2": [1, 1, 1, 1],
             "3": [1, 1, 0, 1]}
    table = pd.DataFrame([
        {"variant": name, "length": 9, "question": i // 2, "place": i % 2, "correct": value}
        for name, values in right.items() for i, value in enumerate(values)])
    halves = by_half(table, 4).set_index("variant")["effect"]
    assert halves["first half"] == pytest.approx((1 + 2) / 8 - 3 / 4)
    assert halves["second half"] == pytest.approx((4 + 3) / 8 - 3 / 4)
    assert len(along(table, {"3": ("a", 0)})) == 4


def test_what_is_kept_by_hand():
    none = float("nan")
    tables = {name: pd.DataFrame({"variant": ["plain", "select", "select"], "question": [0, 0, 1],
                                  "kept": kept}) for name, kept in (
        ("documents", [1, 0.2, none]), ("needles", [1, 0.4, 0.6]))}
    found = tokens_kept(tables)
    assert found["value"].to_dict() == pytest.approx({"plain": 1, "select": 0.4})
    assert found["samples"].tolist() == [2, 3]
    costs = pd.DataFrame({"variant": ["plain", "select"] * 2, "cache_bytes": [90, 45, 110, 55],
                          "hidden_bytes": [0, 10, 0, 20]})
    assert memory(costs).loc["select", ["cache", "both"]].tolist() == [0.5, 0.65]


def test_same_answers_by_hand():
    tables = {"needles": pd.DataFrame({"variant": ["plain"] * 2 + ["a"] * 2 + ["b"] * 2,
                                       "response": ["x", "y", "x", "y", "x", "z"]}),
              "texts": pd.DataFrame({"variant": ["plain", "a", "b"], "nats": [1, 1, 1.0001]})}
    assert same_as(tables, "a") == (3, 3) and same_as(tables, "b") == (1, 3)
