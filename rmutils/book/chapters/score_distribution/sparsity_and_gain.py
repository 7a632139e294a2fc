"""Does RetMask help sparser models more? Gains of designs with equal parameters.

All designs are versions of one model (`score_distribution.sparser_versions`); the test is that of
`data/plans/sparsity_and_gain.yml`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rmutils.book.chapters.score_distribution.sparser_versions import SparsityAndGain
from rmutils.book.experiments.planned_runs import BEFORE, RETMASK
from rmutils.heads import sparsity
from rmutils.stats import (
    LEVEL,
    POWER,
    SHARE,
    Heterogeneity,
    Interval,
    correlation,
    half_width,
    heterogeneity,
    tau_squared,
)

PRIMARY = "hoyer"
ASSUMED_ERROR = 2.0
"""Standard error of a gain, in points, that the plan reckoned with."""


def points(
    result: SparsityAndGain, base: str = BEFORE, statistic: str = PRIMARY
) -> pd.DataFrame:
    """Sparsity before RetMask and the gain by it, design by design.

    The squared standard error of a gain is the variance of its needles over their number, plus the
    variance of its seeds, which is pooled over the designs, over theirs. All designs are asked for
    the same needles, so their gains differ by less than these errors say, if at all.

    Columns: `model`, `found` (share of needles, before), `sparsity` with `_low` and `_high` (95 %,
    over needles), `gain` and `error` (points of 100), `gain_low` and `gain_high` (95 %).
    """
    rows, between = [], []
    for model, part in result.cases.groupby("model", sort=False):
        found = {arm: of_arm.pivot_table(index="needle", columns="seed", values="success",
                                         aggfunc="mean") for arm, of_arm in part.groupby("arm")}
        if BEFORE not in found or RETMASK not in found or base not in found:
            continue
        ours, theirs = found[RETMASK], found[base]
        seeds = ours.columns if base == BEFORE else ours.columns.intersection(theirs.columns)
        if len(seeds) < 2:
            continue
        gains = 100 * (ours[seeds].to_numpy() - (
            theirs.to_numpy() if base == BEFORE else theirs[seeds].to_numpy()))
        scores = result.scores[model]
        spread = scores.statistic(sparsity.statistics()[statistic], bounds=SHARE)
        between.append(gains.mean(0).var(ddof=1))
        rows.append({
            "model": model, "found": found[BEFORE].to_numpy().mean(),
            "sparsity": spread.value, "sparsity_low": spread.low, "sparsity_high": spread.high,
            "gain": gains.mean(), "of_needles": gains.mean(1).var(ddof=1) / len(gains),
            "seeds": len(seeds)})
    if not rows:
        return pd.DataFrame()
    table = pd.DataFrame(rows)
    table["error"] = np.sqrt(table.pop("of_needles") + np.mean(between) / table.pop("seeds"))
    reach = half_width(table["error"])
    table["gain_low"], table["gain_high"] = table["gain"] - reach, table["gain"] + reach
    return table


@dataclass(frozen=True)
class AcrossDesigns:
    """What the designs say together.

    `spread`: Of the gains.
    `tau`: Standard deviation of the true gains, points.
    `r`: Correlation of gain and sparsity.
    """

    spread: Heterogeneity
    tau: float
    r: Interval


def answer(table: pd.DataFrame) -> AcrossDesigns:
    """Test whether gains differ between designs, and correlate them with sparsity."""
    gains, errors = table["gain"], table["error"]
    return AcrossDesigns(heterogeneity(gains, errors), math.sqrt(tau_squared(gains, errors)),
                         correlation(table["sparsity"], gains, errors))


def smallest_effect(
    *, designs: int, error: float, experiments: int = 400, seed: int = 0
) -> float:
    """The smallest spread of true gains that the planned test is likely to relate to sparsity.

    Simulated: true gains lie on a line over sparsity, and normal errors are added. The result is
    the first half point of their standard deviation at which four of five experiments both find
    that gains differ and an interval of r above zero; NaN if 30 points are too few.
    """
    draw = np.random.default_rng(seed)
    x, noise = draw.normal(size=(2, experiments, designs))
    x = (x - x.mean(1, keepdims=True)) / x.std(1, ddof=1, keepdims=True)
    errors = np.full(designs, error)
    for effect in np.arange(1, 61) / 2:
        gains = effect * x + error * noise
        shown = [heterogeneity(y, errors).p < 1 - LEVEL and
                 correlation(one, y, errors, resamples=200).low > 0
                 for one, y in zip(x, gains, strict=True)]
        if np.mean(shown) >= POWER:
            return float(effect)
    return math.nan
