"""Needles on either side of a sliding window, against the rows themselves and on a real model."""

import numpy as np
import pandas as pd
import pytest

from rmutils import load_model
from rmutils.book.chapters.preliminaries.experiment import (
    ACROSS,
    BEYOND,
    WITHIN,
    full_layers,
    sides,
    split,
    summarize,
)
from rmutils.core.errors import UserError
from rmutils.heads import DetectConfig, HeadScores, detect


def test_sides_row_by_row():
    """Every row that decides a token of the answer is asked for every token of the needle."""
    window, answer, prompt, needle = 7, 4, 20, 3
    starts = range(prompt - needle + 1)
    cases = pd.DataFrame({"needle_start": starts, "needle_tokens": needle,
                          "prompt_tokens": prompt})
    for start, side in zip(starts, sides(cases, window, answer), strict=True):
        seen = [row - window < place <= row for row in range(prompt - 1, prompt - 1 + answer)
                for place in range(start, start + needle)]
        assert side == (WITHIN if all(seen) else ACROSS if any(seen) else BEYOND), start
    with pytest.raises(UserError, match="--compute always"):
        sides(cases.drop(columns="needle_start"), window, answer)


def test_sliding_layers_copy_nothing_from_beyond():
    """A model that retrieves, whose windows are 64 tokens in three of four layers."""
    lm = load_model("tiny-olmo3")
    config = DetectConfig(lengths=(256,), depths=(0.0, 1.0), needles=6, max_new_tokens=12)
    scores = detect(lm, config)
    full = full_layers(4, 4)
    kinds = np.array(lm.model.config.layer_types)
    assert lm.model.config.sliding_window == 64
    assert (kinds[full] == "full_attention").all() and (kinds[~full] == "sliding_attention").all()
    parts = split(scores, 64, config.max_new_tokens)
    assert parts[BEYOND].mean[full].sum() > 0 == parts[BEYOND].mean[~full].sum()
    assert parts[WITHIN].mean[~full].sum() > 0
    shares = summarize(scores, window=64, every=4, tau=0.05, answer=12, resamples=50)
    shares = shares[shares["statistic"] == "full_share"].set_index("side")
    assert tuple(shares.loc[BEYOND, ["value", "low", "high"]]) == (1, 1, 1)
    assert 0 < shares.loc[WITHIN, "value"] < 1


def test_summary_by_hand():
    """Two needles near, one of them found; two far, none found. One layer of two is full."""
    cases = pd.DataFrame({
        "case": list("abcd"), "needle": [0, 1, 0, 1], "success": [True, False, False, False],
        "needle_start": [90, 90, 0, 0], "needle_tokens": 4, "prompt_tokens": 100})
    scores = HeadScores(np.array([[[0.0, 0.2], [0.5, 0.1]]]), "m", np.array([0]), cases)
    found = summarize(scores, window=30, every=2, tau=0.1, answer=5, resamples=200)
    found = found.set_index(["side", "statistic"])
    columns = ["cases", "value", "low", "high"]
    assert found.loc[(WITHIN, "found"), columns].tolist() == [2, 0.5, 0, 1]
    assert found.loc[(BEYOND, "found"), columns].tolist() == [2, 0, 0, 0]
    near = found.loc[WITHIN]["value"].round(9)
    assert near[["full_share", "heads", "full_heads", "full_mean", "sliding_mean"]].tolist() == [
        0.75, 3, 2, 0.3, 0.1]
    assert found.loc[BEYOND].index.tolist() == ["found"]
    assert {*summarize(scores, window=200, every=2, tau=0.1, answer=5)["side"]} == {WITHIN}
