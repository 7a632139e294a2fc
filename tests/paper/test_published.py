"""Derived tables of the published scores: consistent as shipped, right on a small made case."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from rmutils.core.errors import UserError
from rmutils.paper import (
    load_published_scores,
    load_published_stability,
    load_published_summary,
    load_score_bins,
)
from rmutils.paper.head_checks import derive, write
from rmutils.paper.tables import PAPER, PUBLISHED_SCORES, PUBLISHED_STABILITY, PUBLISHED_SUMMARY

SHAPES = {"Llama-3.1-8B-Instruct": (32, 32, 342), "Qwen3-8B": (36, 32, 600),
          "Olmo-3-7B-Think": (32, 32, 30)}


@pytest.mark.parametrize("model", SHAPES)
def test_every_head_is_there_with_its_interval(model):
    scores = load_published_scores()
    mine = scores[scores.model == model]
    layers, heads, runs = SHAPES[model]
    assert mine[["layer", "head"]].apply(tuple, axis=1).tolist() == list(np.ndindex(layers, heads))
    assert (mine.runs == runs).all()
    assert (mine.low <= mine["mean"]).all()
    assert (mine["mean"] <= mine.high).all()
    assert ((mine.sd == 0) == (mine["mean"] == 0)).all()


@pytest.mark.parametrize("model", SHAPES)
def test_summary_follows_from_the_heads(model):
    scores, summary = load_published_scores(), load_published_summary()
    x = scores[scores.model == model]["mean"].to_numpy()
    value = summary[summary.model == model].set_index("statistic").value
    assert value["heads_at_least_0.05"] == (x >= 0.05).sum()
    assert value["heads_at_least_0.1"] == (x >= 0.1).sum()
    assert value["mean_score"] == pytest.approx(x.mean(), abs=2e-6)
    assert value["share_zero"] == pytest.approx((x == 0).mean(), abs=1e-6)
    shares = value[value.index.str.startswith("share_")]
    assert len(shares) == load_score_bins().label.nunique()
    assert shares.sum() == pytest.approx(1, abs=5e-6)
    pairs = np.abs(x[:, None] - x).mean() / (2 * x.mean())
    assert value["gini"] == pytest.approx(pairs, abs=1e-4)


def test_summary_and_stability_intervals():
    summary, stability = load_published_summary(), load_published_stability()
    assert (summary.low <= summary.high).all()
    assert ((stability[["overlap_low", "spearman_low"]].to_numpy()
             <= stability[["overlap", "spearman"]].to_numpy()).all())
    for _, rows in stability.groupby("model"):
        assert rows.runs.is_monotonic_increasing
        assert rows.runs.max() < rows.model.map(lambda m: SHAPES[m][2]).iloc[0]
        assert rows.spearman.is_monotonic_increasing


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
