"""What RetMask would gain on a model that it was not run on, judged by sparsity (section 5.2).

"RetMask's effectiveness correlates with the sparsity of the retrieval score distribution", says the
paper. If so, models on which the gain is known foretell that on another: gain = a + b x sparsity,
by least squares, with the interval in which one more model of their kind is expected. When such a
line is no forecast was fixed before any was drawn: see `reasons_against`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import linregress, t

from rmutils.stats import LEVEL

FEWEST = 4
"""Models that a forecast needs. Three leave one degree of freedom, and an interval of no use."""


@dataclass(frozen=True)
class Line:
    """Gain against sparsity over models on which both are known.

    Attributes
    ----------
    known : DataFrame
        `model`, `sparsity`, `gain` (points of 0 to 100), three rows or more.
    intercept, slope : float
    slope_low, slope_high : float
        Its 95 % interval.
    error, error_of_mean : float
        Mean absolute error in points when each model in turn is foretold by the others: by their
        line, and by their mean gain without a look at sparsity.
    """

    known: pd.DataFrame
    intercept: float
    slope: float
    slope_low: float
    slope_high: float
    error: float
    error_of_mean: float

    def at(self, sparsity: np.ndarray | float) -> np.ndarray:
        """Gain with its 95 % prediction interval, in points.

        Returns
        -------
        ndarray
            (..., 3): value, low, high, for one more model. Normal, independent errors are assumed.
        """
        x, y = self.known["sparsity"].to_numpy(), self.known["gain"].to_numpy()
        left = y - self.intercept - self.slope * x
        scale = np.sqrt((left**2).sum() / (len(x) - 2))
        away = (np.asarray(sparsity) - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum()
        half = _quantile(len(x) - 2) * scale * np.sqrt(1 + 1 / len(x) + away)
        value = self.intercept + self.slope * np.asarray(sparsity)
        return np.stack([value, value - half, value + half], axis=-1)


@dataclass(frozen=True)
class Forecast:
    """What a line says of a model.

    Attributes
    ----------
    known : DataFrame
        `model`, `sparsity`, `gain` of the models on which both are known.
    line : Line or None
        Through them; None: they are too few.
    value, low, high : float
        Gain in points with its 95 % prediction interval, which also holds the interval of the
        model's own sparsity; NaN without a line.
    reasons : tuple of str
        Why this is no forecast; empty if it is one.
    """

    known: pd.DataFrame
    line: Line | None
    value: float
    low: float
    high: float
    reasons: tuple[str, ...]

    @property
    def models(self) -> int:
        """How many they are."""
        return len(self.known)


def fit(known: pd.DataFrame) -> Line | None:
    """The line through models with known `sparsity` and `gain`; None for fewer than three."""
    x, y = known["sparsity"].to_numpy(float), known["gain"].to_numpy(float)
    if len(x) < 3:
        return None
    line = linregress(x, y)
    half = _quantile(len(x) - 2) * line.stderr
    misses = []
    for left_out in range(len(x)):
        others, gains = np.delete(x, left_out), np.delete(y, left_out)
        by_line = np.poly1d(np.polyfit(others, gains, 1))(x[left_out])
        misses.append((abs(y[left_out] - by_line), abs(y[left_out] - gains.mean())))
    return Line(known, line.intercept, line.slope, line.slope - half,
                line.slope + half, *map(float, np.mean(misses, axis=0)))


def forecast(known: pd.DataFrame, sparsity: tuple[float, float, float]) -> Forecast:
    """Foretell the gain on a model.

    Parameters
    ----------
    known : DataFrame
        `model`, `sparsity`, `gain` of models of one kind; rows without either do not count.
    sparsity : tuple of float
        Of the model in question, with the ends of its 95 % interval. The same measure.
    """
    known = known.reindex(columns=["model", "sparsity", "gain"]).dropna()
    line = fit(known)
    if line is None:
        return Forecast(known, None, np.nan, np.nan, np.nan,
                        (f"of such models, sparsity and gain are known of {len(known)} only",))
    drawn = line.at(np.array(sparsity))
    return Forecast(known, line, float(drawn[0, 0]), float(drawn[:, 1].min()),
                    float(drawn[:, 2].max()), tuple(reasons_against(line, sparsity[0])))


def reasons_against(line: Line, sparsity: float) -> list[str]:
    """Why a line does not foretell the gain at some sparsity; empty if nothing speaks against it.

    There must be `FEWEST` models; the interval of the slope must leave out zero; the line must
    foretell each of its own models from the others better than their mean gain does; and the
    sparsity must lie within that of the models.
    """
    count, lowest, highest = len(line.known), *line.known["sparsity"].agg(["min", "max"])
    against = []
    if count < FEWEST:
        against.append(f"{count} models are fewer than the {FEWEST} that a line with an interval "
                       "needs")
    if line.slope_low <= 0 <= line.slope_high:
        against.append("a gain that goes with sparsity is not seen in them: the slope is "
                       f"{line.slope:.0f} points per unit of sparsity [{line.slope_low:.0f}, "
                       f"{line.slope_high:.0f}]")
    if line.error >= line.error_of_mean:
        against.append("each of them is foretold worse by the line through the others "
                       f"(off by {line.error:.1f} points) than by their mean "
                       f"({line.error_of_mean:.1f})")
    if not lowest <= sparsity <= highest:
        against.append(f"this model's sparsity, {sparsity:.3f}, is outside of theirs, "
                       f"{lowest:.3f} to {highest:.3f}")
    return against


def _quantile(freedom: int) -> float:
    return float(t.ppf((1 + LEVEL) / 2, freedom))
