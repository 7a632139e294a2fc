"""Bootstrap over clusters: intervals for means of cases that are not independent."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import norm, t

RESAMPLES = 2000
LEVEL = 0.95


def cluster_bootstrap(
    values: np.ndarray, clusters: np.ndarray | None, *, resamples: int = RESAMPLES, seed: int = 0
) -> np.ndarray:
    """Means of `values` under resampling of whole clusters with replacement.

    Cases with the same needle are alike, so resampling single cases would give intervals that are
    too short.

    Parameters
    ----------
    values : ndarray
        (cases, ...).
    clusters : ndarray or None
        (cases,): labels of the groups drawn together. None: each case is its own group.

    Returns
    -------
    ndarray
        (resamples, ...).
    """
    labels = np.arange(len(values)) if clusters is None else clusters
    groups, member = np.unique(labels, return_inverse=True)
    sums = np.zeros((len(groups), math.prod(values.shape[1:])))
    np.add.at(sums, member, np.reshape(values, (len(values), -1)).astype(float))
    sizes = np.bincount(member)
    draws = np.random.default_rng(seed).multinomial(
        len(groups), np.full(len(groups), 1 / len(groups)), size=resamples)
    return ((draws @ sums) / (draws @ sizes)[:, None]).reshape(resamples, *values.shape[1:])


def percentiles(samples: np.ndarray, level: float = LEVEL) -> np.ndarray:
    """Percentile interval along the first axis; the result ends with an axis (low, high)."""
    tail = (1 - level) / 2
    return np.moveaxis(np.quantile(samples, [tail, 1 - tail], axis=0), 0, -1)


def expansion(count: int) -> float:
    """By how much a 95 % percentile interval from so many independent values is too short: at least
    two. The expanded interval of Hesterberg (2015)."""
    quantile = (1 + LEVEL) / 2
    return np.sqrt(count / (count - 1)) * t.ppf(quantile, count - 1) / norm.ppf(quantile)
