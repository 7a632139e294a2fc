"""Copies among published runs: counted in another way, and as the shipped tables have them."""

import numpy as np
import pytest

from rmutils.heads.scores import HeadScores
from rmutils.paper.head_checks import each_map_once, map_numbers, map_table, stretches


@pytest.fixture
def scores():
    a, b, c = np.random.default_rng(0).random((3, 2, 3))
    return HeadScores(np.stack([a, a, b, a, c, c, c]), "m")


def test_numbers_by_comparing_all_pairs(scores):
    runs = scores.runs
    first = [min(j for j in range(i + 1) if (runs[i] == runs[j]).all()) for i in range(len(runs))]
    assert map_numbers(scores).tolist() == [sorted({*first}).index(i) for i in first]
    assert map_numbers(scores).tolist() == [0, 0, 1, 0, 2, 2, 2]


def test_each_map_once(scores):
    once = each_map_once(scores)
    np.testing.assert_array_equal(once.runs, scores.runs[[0, 2, 4]])
    assert once.model == "m"


def test_stretches_cover_all_runs(scores):
    table = map_table(scores)
    blocks = stretches(table)
    assert blocks["length"].tolist() == [2, 1, 1, 3] and blocks["start"].tolist() == [0, 2, 3, 4]
    again = np.repeat(blocks["map"], blocks["length"]).tolist()
    assert again == table["map"].tolist()
