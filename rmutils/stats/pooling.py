"""One effect from several studies that differ: random effects."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.stats import chi2, norm, t

from rmutils.stats.intervals import LEVEL, Interval


class Pooled(NamedTuple):
    """The mean effect over studies, with its 95 % interval."""

    value: float
    low: float
    high: float
    between: float  # standard deviation of the true effects of the studies, as estimated
    studies: int

    @property
    def interval(self) -> Interval:
        """The mean with its ends."""
        return Interval(self.value, self.low, self.high)


def standard_error(low: npt.ArrayLike, high: npt.ArrayLike) -> Any:
    """Return the standard error that a 95 % interval stands for, as `smallest_effect` reads it."""
    return (np.asarray(high) - np.asarray(low)) / 2 / norm.ppf((1 + LEVEL) / 2)


def half_width(error: npt.ArrayLike) -> Any:
    """Return half of the 95 % interval of an estimate with this standard error."""
    return norm.ppf((1 + LEVEL) / 2) * np.asarray(error)


class Heterogeneity(NamedTuple):
    """Cochran's Q, its degrees of freedom, and p if all true values are equal."""

    q: float
    freedom: int
    p: float


def heterogeneity(values: npt.ArrayLike, errors: npt.ArrayLike) -> Heterogeneity:
    """Test whether estimates differ by more than their standard errors explain."""
    found, weights = np.asarray(values, dtype=float), np.asarray(errors, dtype=float) ** -2.0
    q = float(weights @ (found - np.average(found, weights=weights)) ** 2)
    return Heterogeneity(q, len(found) - 1, float(chi2.sf(q, len(found) - 1)))


def tau_squared(values: npt.ArrayLike, errors: npt.ArrayLike) -> float:
    """Variance of the true values behind estimates, from Cochran's Q. DerSimonian and Laird (1986),
    "Meta-analysis in clinical trials", Controlled Clinical Trials 7."""
    weights = np.asarray(errors, dtype=float) ** -2.0
    q, freedom, _ = heterogeneity(values, errors)
    return float(max(q - freedom, 0) / (weights.sum() - (weights**2).sum() / weights.sum()))


def pool(effects: npt.ArrayLike, errors: npt.ArrayLike) -> Pooled:
    """Pool the effects of studies, whose true effects may differ: weights by Paule and Mandel; the
    interval of Hartung and Knapp (2001), Statistics in Medicine 20, never narrower than the weights
    alone make it. Röver, Knapp and Friede (2015), BMC Medical Research Methodology 15."""
    y, squared = np.asarray(effects, float), np.square(np.asarray(errors, float))
    if len(y) < 2 or not (np.isfinite(y).all() and (squared > 0).all()):
        raise ValueError("pooling needs two or more effects, with errors above 0")
    free = len(y) - 1

    def mean(variance: float) -> tuple[float, float, float]:
        """Return the mean, the sum of weights and the weighted squares around the mean."""
        weights = 1 / (squared + variance)
        middle = float((weights * y).sum() / weights.sum())
        return middle, float(weights.sum()), float((weights * (y - middle) ** 2).sum())

    scatter = mean(0.0)[2]
    between = 0.0 if scatter <= free else float(brentq(
        lambda variance: mean(variance)[2] - free, 0, scatter * squared.max()))
    value, weight, scatter = mean(between)
    half = float(t.ppf((1 + LEVEL) / 2, free)) * math.sqrt(max(1, scatter / free) / weight)
    return Pooled(value, value - half, value + half, math.sqrt(between), len(y))
