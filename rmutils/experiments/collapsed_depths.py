"""Which heads would the published detection have found if its ten depths had been real?

The comparison of `data/plans/collapsed_depths.yml`, on stored detections with real depths: their
cases at the start of the text, counted nine times, and those at its end, counted once, are what the
published script looks at (`rmutils.corpora.niah`). The control has as few different
cases, at places drawn at random.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from rmutils.core.errors import NotStored
from rmutils.experiments.head_ranking import rank_correlations
from rmutils.heads import DetectConfig, HeadScores
from rmutils.heads.detection import detect_stored, even_depths
from rmutils.heads.head_change import needle_weights, weighted_means
from rmutils.heads.scores import DECIMALS
from rmutils.heads.sparsity import share_above
from rmutils.pipeline.planned_runs import Plan
from rmutils.stats import ANY, RESAMPLES, interval_of, spread

CHOICES = 50
"""Random choices of two places for each needle and length."""
REAL, COLLAPSED, RANDOM = "real", "collapsed", "two random places"
OVERLAP = "top heads in common"


def grid_of(plan: Plan, model: str) -> DetectConfig:
    """Return the grid with real depths that is planned for a model."""
    grid = plan.content["grids"].get(model, plan.content["grids"]["teaching"])
    return DetectConfig(lengths=tuple(grid["lengths"]), depths=even_depths(grid["depths"]))


def deviations(plan: Plan) -> list[str]:
    """Say what the plan wants beside the comparison and is not stored, in a sentence each."""
    model, grid = plan.content["models"][0], DetectConfig(
        definition="wu", lengths=(512, 1024), depths=even_depths(10), needles=3)
    try:
        detect_stored(model, grid, compute="never")
    except NotStored:
        return [f"The plan wants a detection of {model} by the published script's definition "
                "beside this comparison; it was not run."]
    return []


def compare_depths(
    scores: HeadScores, tau: float, *, resamples: int = RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """Compare the heads of a detection with those of its start and end alone.

    Parameters
    ----------
    scores : HeadScores
        A detection with `cases`, at two depths or more.
    tau : float
        The top heads are as many as reach it on real depths.

    Returns
    -------
    DataFrame
        `quantity`; its value by `real`, `collapsed` and `two random places`; `difference` of the
        latter two, with `low` and `high` (95 %, over needles).
    """
    cases = scores.cases
    table = np.zeros((len(cases), scores.mean.size + 1))
    table[cases["success"].to_numpy(bool), :-1] = scores.runs.reshape(len(scores.runs), -1)
    table[:, -1] = cases["success"]
    needles = cases["needle"].to_numpy()
    of_needle = (np.unique(needles)[:, None] == needles).astype(float)
    drawn = needle_weights(len(of_needle), resamples, seed)
    count = round(share_above(scores.mean, tau) * scores.mean.size)

    chosen = np.argsort(-scores.mean.ravel(), kind="stable")[:count]

    def means_of(times: np.ndarray) -> np.ndarray:
        """Mean scores, (draws, heads), if each case is counted so many times."""
        return weighted_means(of_needle @ (times[:, None] * table), drawn).round(DECIMALS)

    whole = means_of(np.ones(len(cases)))
    highest = _top(whole, count)

    def measured(times: np.ndarray) -> dict[str, np.ndarray]:
        means = means_of(times)
        found, asked = (drawn @ (of_needle @ part) for part in (times * table[:, -1], times))
        return {
            OVERLAP: (_top(means, count) & highest).sum(1) / count,
            "rank correlation": rank_correlations(whole, means),
            f"heads at or above {tau:g}": (means >= tau).sum(1).astype(float),
            "mean score, top heads": means[:, chosen].mean(1),
            "mean score, all heads": means.mean(1), "needles found": found / asked}

    depth = cases["depth"].to_numpy()
    real = measured(np.ones(len(cases)))
    collapsed = measured(np.where(depth == depth.min(), 9.0, depth == depth.max()))
    rng, places = np.random.default_rng(seed), [
        np.asarray(rows) for rows in cases.groupby(["needle", "length"]).indices.values()]
    total = dict.fromkeys(real, np.zeros(len(drawn)))
    for _ in range(CHOICES):
        times = np.zeros(len(cases))
        for rows in places:
            times[rng.choice(rows, 2, replace=False)] = 9, 1
        once = measured(times)
        total = {name: value + once[name] / CHOICES for name, value in total.items()}
    rows = []
    for name, value in real.items():
        change = collapsed[name] - total[name]
        _, low, high = interval_of(spread(change, len(of_needle)), bounds=ANY, centred=True)
        rows.append((name, value[0], collapsed[name][0], total[name][0], change[0], low, high))
    return pd.DataFrame(rows, columns=["quantity", REAL, COLLAPSED, RANDOM, "difference", "low",
                                       "high"])


def _top(means: np.ndarray, count: int) -> np.ndarray:
    """Mark the highest heads of each row."""
    marks = np.zeros(means.shape, bool)
    np.put_along_axis(marks, np.argsort(-means, axis=1, kind="stable")[:, :count], True, axis=1)
    return marks
