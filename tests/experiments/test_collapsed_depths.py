"""Collapsed against real depths: a slow count of copies."""

import numpy as np
import pandas as pd
import pytest

from rmutils.book.chapters.preliminaries import experiment as module
from rmutils.book.chapters.preliminaries.experiment import compare_depths
from rmutils.heads import HeadScores

DEPTHS = (0.0, 0.3, 0.6, 1.0)


@pytest.fixture
def scores():
    rng = np.random.default_rng(3)
    cases = pd.DataFrame([(n, 256, d) for n in range(6) for d in DEPTHS],
                         columns=["needle", "length", "depth"])
    cases["success"] = rng.random(len(cases)) < 0.8
    runs = rng.random((cases["success"].sum(), 2, 5)) * np.linspace(0, 1, 10).reshape(2, 5)
    return HeadScores(runs, "m", cases.loc[cases["success"], "needle"].to_numpy(), cases)


def test_by_writing_every_copy_down(scores, monkeypatch):
    monkeypatch.setattr(module, "CHOICES", 3)
    table = compare_depths(scores, 0.3, resamples=50).set_index("quantity")
    copies, copied = [], scores.cases[scores.cases["success"]]["depth"].tolist()
    for run, depth in zip(scores.runs, copied, strict=True):
        copies += [run] * {0.0: 9, 1.0: 1}.get(depth, 0)
    mean = np.mean(copies, 0).ravel()
    count = int((scores.mean >= 0.3).sum())
    tops = [set(np.argsort(-m)[:count]) for m in (scores.mean.ravel(), mean)]
    assert table.loc["top heads in common", "collapsed"] == len(tops[0] & tops[1]) / count
    assert table.loc["mean score, all heads", "collapsed"] == pytest.approx(mean.mean())
    assert table.loc["heads at or above 0.3", "real"] == count
    assert table.loc["needles found", "real"] == pytest.approx(scores.cases["success"].mean())
    found = scores.cases.groupby("depth")["success"].mean()
    assert table.loc["needles found", "collapsed"] == pytest.approx(.9 * found[0] + .1 * found[1])
    assert (table["low"] <= table["difference"]).all()
    assert (table["difference"] <= table["high"]).all()
