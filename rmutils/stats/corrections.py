"""Corrections for many comparisons, and what a comparison could have detected."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.stats import norm, t

from rmutils.stats.intervals import LEVEL, Array, Interval

POWER = 0.8


def holm(p: npt.ArrayLike, planned: int = 0) -> Array:
    """P-values of a family of comparisons, corrected by Holm's step-down method; NaN is no member.
    """
    found = np.asarray(p, dtype=float)
    if planned > len(found):
        return holm([*found, *[1.0] * (planned - len(found))])[: len(found)]
    order = np.argsort(found)[:np.isfinite(found).sum()]
    steps = np.maximum.accumulate(found[order] * np.arange(len(order), 0, -1))
    corrected = np.full_like(found, math.nan)
    corrected[order] = np.minimum(steps, 1)
    return corrected


def smallest_effect(low: float, high: float) -> float:
    """The smallest effect that a comparison with this 95 % interval detects with power 0.8."""
    return float((high - low) / 2 * (1 + norm.ppf(POWER) / norm.ppf((1 + LEVEL) / 2)))


def smallest_p(clusters: int) -> float:
    """The smallest p of a two-sided sign-flip test: 0.0625 for five clusters, 0.03125 for six."""
    return min(2.0 ** (1 - clusters), 1.0)


def interval_p(found: Interval, bound: float, clusters: int) -> float:
    """Two-sided p of a bound, from a 95 % interval: 0.05 where the interval just reaches it, by
    Student's t on the side that faces the bound; 1 if the interval is not known."""
    value, low, high = found
    distance, half = abs(value - bound), value - low if value > bound else high - value
    if not distance > 0 or math.isnan(half):
        return 1.0
    least, freedom = smallest_p(clusters), max(clusters - 1, 1)
    if half == 0:
        return least
    quantile = distance / half * t.ppf((1 + LEVEL) / 2, freedom)
    return float(max(2 * t.sf(quantile, freedom), least))
