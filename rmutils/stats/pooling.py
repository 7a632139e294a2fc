"""One effect from several studies that differ: random effects."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.stats import norm, t

from rmutils.stats.intervals import LEVEL, Interval


class Pooled(NamedTuple):
    """The mean effect over studies, with its 95 % interval.

    Attributes
    ----------
    value, low, high : float
    between : float
        Standard deviation of the true effects of the studies, as estimated.
    studies : int
    """

    value: float
    low: float
    high: float
    between: float
    studies: int

    @property
    def interval(self) -> Interval:
        """The mean with its ends."""
        return Interval(self.value, self.low, self.high)


def standard_error(low: float, high: float) -> float:
    """Return the standard error that a 95 % interval stands for, as `smallest_effect` reads it."""
    return float((high - low) / 2 / norm.ppf((1 + LEVEL) / 2))


def pool(effects: npt.ArrayLike, errors: npt.ArrayLike) -> Pooled:
    """Pool the effects of several studies, whose true effects may differ.

    A study weighs 1 / (its squared error + the variance between studies), which is chosen by Paule
    and Mandel: so that the effects scatter around their mean as much as the weights say. The
    interval is that of Hartung and Knapp, with Student's t, and is never narrower than the weights
    alone would make it: with a handful of studies their scatter may be small by luck.

    Parameters
    ----------
    effects, errors : array_like
        (studies,): estimates and their standard errors.

    Raises
    ------
    ValueError
        Fewer than two studies, or an error that is not a positive number.

    References
    ----------
    Hartung and Knapp (2001), Statistics in Medicine 20. Röver, Knapp and Friede (2015), BMC Medical
    Research Methodology 15.

    Examples
    --------
    >>> found = pool([0.3, -0.2, 0.4], [0.1, 0.2, 0.15])
    >>> round(found.value, 2), round(found.low, 2), round(found.high, 2)
    (0.19, -0.57, 0.95)
    """
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
