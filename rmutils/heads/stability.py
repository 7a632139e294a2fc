"""How many runs or needles a ranking of heads needs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from rmutils.heads.scores import DECIMALS, HeadScores
from rmutils.stats import percentiles

COLUMNS = ["count", "overlap", "overlap_low", "overlap_high",
           "spearman", "spearman_low", "spearman_high"]


def ranking_stability(
    scores: HeadScores, counts: Iterable[int], *, top_k: int, draws: int = 50, seed: int = 0
) -> pd.DataFrame:
    """Compare the ranking from a part of the needles (or runs) with the ranking from all.

    Parameters
    ----------
    scores : HeadScores
        Its clusters are drawn, without replacement; its runs, if it has no clusters.
    counts : iterable of int
        How many clusters to draw.
    top_k : int
        Heads whose overlap is compared.

    Returns
    -------
    DataFrame
        A row per count: `overlap`, the share of the `top_k` heads in common, and `spearman`, the
        rank correlation over all heads; each with mean, 2.5 % and 97.5 % percentile over draws.
    """
    runs = scores.runs.reshape(len(scores.runs), -1)
    labels = np.arange(len(runs)) if scores.clusters is None else scores.clusters
    groups = np.unique(labels)
    rng = np.random.default_rng(seed)
    full = runs.mean(0).round(DECIMALS)
    top = _top(full, top_k, rng)
    rows = []
    for count in counts:
        drawn = [np.isin(labels, rng.choice(groups, count, replace=False)) for _ in range(draws)]
        means = [runs[chosen].mean(0).round(DECIMALS) for chosen in drawn]
        overlap = [len(top & _top(mean, top_k, rng)) / len(top) for mean in means]
        spearman = [_correlation(mean, full) for mean in means]
        rows.append((count, np.mean(overlap), *percentiles(np.array(overlap)),
                     np.mean(spearman), *percentiles(np.array(spearman))))
    return pd.DataFrame(rows, columns=COLUMNS)


def top_overlap(a: HeadScores, b: HeadScores, top_k: int, *, seed: int = 0) -> np.ndarray:
    """How many of the `top_k` heads of `a` are among those of `b`, with a 95 % interval.

    Needles are resampled; where both have the same needles, the same ones are drawn for both.

    Returns
    -------
    ndarray
        (count, low, high).
    """
    tops = []
    for scores in (a, b):
        means = np.concatenate([scores.mean[None], scores.bootstrap(seed=seed)]).round(DECIMALS)
        order = np.argsort(-means.reshape(len(means), -1), axis=1, kind="stable")
        tops.append(order[:, :top_k])
    counts = np.array([len(np.intersect1d(x, y)) for x, y in zip(*tops, strict=True)])
    return np.array([counts[0], *percentiles(counts[1:])])


def _top(mean: np.ndarray, top_k: int, rng: np.random.Generator) -> set[int]:
    """The highest heads. Ties in random order, or few runs would favour the first layers."""
    return set(np.lexsort((rng.random(mean.size), -mean))[:top_k].tolist())


def _correlation(mean: np.ndarray, full: np.ndarray) -> float:
    """Spearman's rho; 0 where all heads score alike, as in a run whose needle was not found."""
    return float(spearmanr(mean, full).statistic) if np.ptp(mean) > 0 else 0.0
