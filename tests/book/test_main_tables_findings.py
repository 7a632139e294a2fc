"""Comparisons of trainings are counted right, by hand."""

import math

import pandas as pd

from rmutils.book.chapters.main_tables.experiment import able_to_differ
from rmutils.book.chapters.main_tables.findings import counted


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
