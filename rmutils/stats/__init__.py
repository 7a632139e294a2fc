"""Intervals, comparisons of what was measured on the same units, and corrections for many."""

from rmutils.stats.contrast import (
    FLIPS,
    Contrast,
    chance_p,
    compare,
    contrast,
    paired,
    sign_flip_test,
)
from rmutils.stats.corrections import POWER, holm, interval_p, smallest_effect, smallest_p
from rmutils.stats.correlations import Correlation, Line, correlation, fit_line, pearson, spearman
from rmutils.stats.intervals import (
    ANY,
    CONTRAST,
    DIFFERENCE,
    LEVEL,
    MORE_POINTS,
    POINTS,
    POSITIVE,
    RELATIVE,
    RESAMPLES,
    SHARE,
    TIE,
    Bounds,
    Interval,
    crossed_interval,
    draws,
    expansion,
    interval,
    interval_of,
    span,
    spread,
)
from rmutils.stats.pooling import (
    Heterogeneity,
    Pooled,
    half_width,
    heterogeneity,
    pool,
    standard_error,
    tau_squared,
)

__all__ = [
    "ANY", "Bounds", "CONTRAST", "Contrast", "Correlation", "DIFFERENCE", "FLIPS",
    "Heterogeneity", "Interval", "LEVEL", "Line", "MORE_POINTS", "POINTS", "POSITIVE", "POWER",
    "Pooled", "RELATIVE", "RESAMPLES", "SHARE", "TIE", "chance_p", "compare", "contrast",
    "correlation", "crossed_interval", "draws", "expansion", "fit_line", "half_width",
    "heterogeneity", "holm", "interval", "interval_of", "interval_p", "paired", "pearson",
    "pool", "sign_flip_test", "smallest_effect", "smallest_p", "span", "spearman", "spread",
    "standard_error", "tau_squared",
]
