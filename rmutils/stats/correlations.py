"""Correlations of few points and lines through them, with their intervals."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import linregress, norm, pearsonr, rankdata, spearmanr, t

from rmutils.stats import intervals


class Correlation(NamedTuple):
    """A correlation with its 95 % interval and p."""

    value: Any
    low: Any
    high: Any
    p: float


def pearson(x: npt.ArrayLike, y: npt.ArrayLike) -> Correlation:
    """Return Pearson's r with Fisher's interval; uncertain points make a correlation weaker."""
    found = pearsonr(x, y)
    low, high = found.confidence_interval()
    return Correlation(found.statistic, low, high, found.pvalue)


def spearman(x: npt.ArrayLike, y: npt.ArrayLike, *, resamples: int = intervals.RESAMPLES,
             seed: int = 0) -> Correlation:
    """Return Spearman's rank correlation with a bootstrap interval over points."""
    first, second = np.asarray(x), np.asarray(y)
    ranks = spearmanr(first, second)
    draws = np.random.default_rng(seed).integers(0, len(first), (resamples, len(first)))
    drawn = _alike(rankdata(first[draws], axis=1), rankdata(second[draws], axis=1))
    found = intervals.interval_of(intervals.spread(np.array([ranks.statistic, *drawn]), len(first)),
                                  bounds=intervals.DIFFERENCE)
    return Correlation(found.value, found.low, found.high, ranks.pvalue)


@np.errstate(invalid="ignore")
def _alike(x: intervals.Array, y: intervals.Array) -> intervals.Array:
    """Pearson's correlation of each row of `x` with that of `y`; NaN where one does not vary."""
    x, y = (values - values.mean(1, keepdims=True) for values in (x, y))
    return np.asarray((x * y).sum(1) / np.sqrt((x**2).sum(1) * (y**2).sum(1)))


def correlation(x: npt.ArrayLike, y: npt.ArrayLike, errors: npt.ArrayLike, *,
                resamples: int = intervals.RESAMPLES, seed: int = 0) -> intervals.Interval:
    """Pearson's r, with an interval for few points whose `y` are uncertain themselves. On Fisher's
    scale the variance is 1 / (n - 3) for the choice of points, plus that of a simulation that adds
    normal errors to every `y`. Ends are NaN for fewer than four points."""
    first, second = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    r = float(np.corrcoef(first, second)[0, 1])
    if len(first) < 4:
        return intervals.Interval(r, math.nan, math.nan)
    noise = np.random.default_rng(seed).normal(size=(resamples, len(first)))
    moved = second + noise * np.asarray(errors, dtype=float)
    moved -= moved.mean(1, keepdims=True)
    drawn = moved @ (first - first.mean()) / (
        np.linalg.norm(moved, axis=1) * np.linalg.norm(first - first.mean()))
    almost = 1 - intervals.TIE
    scale = math.atanh(min(max(r, -almost), almost))
    spread_of = np.var(np.arctanh(np.clip(drawn, -almost, almost))) + 1 / (len(first) - 3)
    half = norm.ppf((1 + intervals.LEVEL) / 2) * math.sqrt(spread_of)
    return intervals.Interval(r, math.tanh(scale - half), math.tanh(scale + half))


class Line(NamedTuple):
    """The line of least squares through points; errors are taken as normal and independent."""

    x: intervals.Array
    y: intervals.Array
    intercept: float
    slope: intervals.Interval

    def at(self, x: npt.ArrayLike) -> intervals.Interval:
        """Return the 95 % prediction interval of one more point."""
        where, free = np.asarray(x, dtype=float), len(self.x) - 2
        scale = math.sqrt(((self.y - self.intercept - self.slope.value * self.x) ** 2).sum() / free)
        away = (where - self.x.mean()) ** 2 / ((self.x - self.x.mean()) ** 2).sum()
        half = t.ppf((1 + intervals.LEVEL) / 2, free) * scale * np.sqrt(1 + 1 / len(self.x) + away)
        value = self.intercept + self.slope.value * where
        return intervals.Interval(value, value - half, value + half)

    def errors(self) -> tuple[float, float]:
        """Return mean absolute leave-one-out errors, of the line and of the mean."""
        misses = []
        for left_out in range(len(self.x)):
            others, values = np.delete(self.x, left_out), np.delete(self.y, left_out)
            by_line = np.poly1d(np.polyfit(others, values, 1))(self.x[left_out])
            misses.append((abs(self.y[left_out] - by_line), abs(self.y[left_out] - values.mean())))
        by_line, by_mean = np.mean(misses, axis=0)
        return float(by_line), float(by_mean)


def fit_line(x: npt.ArrayLike, y: npt.ArrayLike) -> Line:
    """Fit a line to three points or more; its slope has a 95 % interval."""
    first, second = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    found = linregress(first, second)
    half = float(t.ppf((1 + intervals.LEVEL) / 2, len(first) - 2)) * found.stderr
    return Line(first, second, found.intercept,
                intervals.Interval(found.slope, found.slope - half, found.slope + half))
