"""Derived tables of the published scores: consistent as shipped, right on a small made case."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from rmutils.core.errors import UserError
from rmutils.paper import load_published_scores
from rmutils.paper.head_checks import derive, write
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
