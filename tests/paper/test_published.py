"""Published scores: derived tables and copies among the runs, by hand and as shipped."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from rmutils.core.errors import UserError
from rmutils.heads.scores import HeadScores
from rmutils.paper import load_published_scores
from rmutils.paper.head_checks import (
    derive,
    each_map_once,
    map_numbers,
    map_table,
    stretches,
    write,
)
from rmutils.paper.tables import PAPER, PUBLISHED_SCORES, PUBLISHED_STABILITY, PUBLISHED_SUMMARY


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """8 x 8 heads, 12 runs: one head at exactly 0.1, one at 0.25, one always at 1, others at 0."""
    folder = tmp_path_factory.mktemp("scores")
    scores = {f"{i}-{j}": [0] * 12 for i, j in np.ndindex(8, 8)}
    scores["2-3"] = [0.3, 0, 0] * 4  # Its mean in floats is 0.09999999999999999.
    scores["5-0"] = [0.5, 0] * 6
    scores["7-7"] = [1] * 12
    (folder / "made.json").write_text(json.dumps(scores))
    return folder


def test_made_case(made):
    tables = derive(made)
    heads = tables[PUBLISHED_SCORES].set_index(["layer", "head"])
    assert heads.loc[(5, 0)]["mean"] == 0.25
    assert heads.loc[(5, 0)].sd == pytest.approx(0.25 * (12 / 11) ** 0.5)
    assert heads.loc[(7, 7)][["low", "high", "sd"]].tolist() == [1, 1, 0]
    value = tables[PUBLISHED_SUMMARY].set_index("statistic").value
    assert value["heads_at_least_0.1"] == value["heads_at_least_0.05"] == 3
    assert value["share_zero"] == 61 / 64
    assert value["share_0.05_0.1"] == value["share_0_0.05"] == 0
    assert value["share_0.1_0.5"] == 2 / 64
    assert value["share_0.5_1"] == 1 / 64
    assert tables[PUBLISHED_STABILITY].runs.tolist() == [1, 2, 5, 10]


def test_writing_twice_gives_the_same_bytes(made, tmp_path):
    first, second = (write(derive(made), tmp_path / name) for name in "ab")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]
    assert len(load_published_scores(tmp_path / "a")) == 64


def test_folder_without_scores(tmp_path):
    with pytest.raises(UserError, match="no \\*.json with head scores"):
        derive(tmp_path)
    (tmp_path / "bad.json").write_text('{"0-0": [0.1], "0-1": [0.1, 0.2]}')
    with pytest.raises(UserError, match="bad.json: heads have different numbers of runs"):
        derive(tmp_path)


@pytest.mark.skipif("RETMASK_HEAD_SCORES" not in os.environ,
                    reason="RETMASK_HEAD_SCORES names no folder with the authors' per-run scores")
def test_shipped_files_are_derived_again_byte_for_byte(tmp_path):
    for path in write(derive(Path(os.environ["RETMASK_HEAD_SCORES"])), tmp_path):
        assert path.read_bytes() == (PAPER / path.name).read_bytes()


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
