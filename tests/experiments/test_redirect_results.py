"""What answers follow, counted by hand."""

import numpy as np
import pandas as pd
import pytest

from rmutils.book.chapters.redirect_heads import findings as results
from rmutils.book.chapters.redirect_heads.experiment import MATCHED, PLAIN, TOP
from rmutils.book.chapters.redirect_heads.findings import (
    BOTH,
    NEITHER,
    OTHER,
    POINTED,
    by_pair,
    condition,
    failed,
    judged,
    more,
    primary,
    rates,
)

PAIRS = 8


def answers(policy, target, follows, *, count=4, variant="two", score="copy"):
    """One answer about each pair."""
    return pd.DataFrame({
        "score": "" if policy == PLAIN else score, "policy": policy, "count": count,
        "strength": 5.0, "draw": 0, "pair": range(PAIRS), "kind": "city", "variant": variant,
        "first": 0, "target": target, "follows": follows, "surprise": 0.5, "response": ""})


@pytest.fixture
def table():
    """Plain answers follow sentence 1, but for two; top heads follow where they are pointed, but
    for one; others change nothing."""
    plain = ["1"] * 6 + ["neither", "both"]
    return judged(pd.concat([
        answers(PLAIN, -1, plain, count=0), answers(TOP, 0, ["0"] * 8),
        answers(TOP, 1, ["1"] * 7 + ["0"]), answers(MATCHED, 0, plain),
        answers(MATCHED, 1, plain)]))


def test_what_answers_hold(table):
    plain = condition(table, PLAIN)
    assert len(plain) == 16 and plain["held"].value_counts().to_dict() == {
        POINTED: 6, OTHER: 6, NEITHER: 2, BOTH: 2}
    assert by_pair(condition(table, TOP)).tolist() == [1.0] * 7 + [0.5]
    shown = rates(table).set_index("policy")
    assert shown.loc[TOP, POINTED] == 15 / 16 and shown.loc[TOP, OTHER] == 1 / 16
    assert shown.loc[MATCHED, [POINTED, OTHER, BOTH, NEITHER]].tolist() == [
        3 / 8, 3 / 8, 1 / 8, 1 / 8]
    assert (shown["low"] <= shown[POINTED]).all() and (shown[POINTED] <= shown["high"]).all()


def test_a_sentence_alone_is_pointed_at_once():
    table = judged(pd.concat([answers(PLAIN, -1, "0", variant="alone"),
                              answers(TOP, 0, "0", variant="alone")]))
    assert len(table) == 2 * PAIRS and {*table["target"]} == {0}


def test_the_rule_of_the_plan(table):
    """Differences of the pairs: 6 times 1/2, then 1, then 1/2."""
    found = more(condition(table, TOP), condition(table, MATCHED))
    assert found.value == pytest.approx((6 * 0.5 + 1 + 0.5) / 8) and found.p == 2 / 2**PAIRS
    both = primary({"a": table, "b": table})
    assert both["p_holm"].tolist() == pytest.approx([4 / 2**PAIRS] * 2)
    assert both["top"].tolist() == pytest.approx([15 / 16] * 2) and both["plain"][0] == 6 / 16
    assert primary({}).empty


def test_main_conditions_have_most_heads_and_the_largest_bias():
    table = pd.concat([answers(TOP, 0, "0", count=n).assign(strength=float(s))
                       for n in (2, 9) for s in (2, 5)])
    assert {*condition(table, TOP)["count"]} == {9}
    assert {*condition(table, TOP)["strength"]} == {5.0}
    assert {*condition(table, TOP, count=2, strength=2.0)["count"]} == {2}


def test_texts_that_the_plain_model_fails(table, monkeypatch):
    kept = results.Stored({"a": table}, {})
    monkeypatch.setattr(results, "stored", lambda part="contradictions": kept)
    assert np.unique(failed("a")["pair"]).tolist() == [6]
    shown = results.recovered_table()
    assert shown.loc[0, "heads that copy"] == 100 and shown.loc[0, "difference"] == "too few"
