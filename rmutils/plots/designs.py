"""Gain against sparsity."""

from __future__ import annotations

import pandas as pd
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rmutils.plots.style import BLUE, GREY, RED, new_axes
from rmutils.stats import LEVEL, RESAMPLES


def gain_over_sparsity(designed: pd.DataFrame, paper: pd.DataFrame, name: str) -> Figure:
    """Designed models with a line and its 95 % band, and beside them the paper's.

    Parameters
    ----------
    designed : DataFrame
        As from `rmutils.evaluation.designed_gains.points`.
    paper : DataFrame
        As from `rmutils.paper.sparsity_gains.sparsity_gains`.
    name : str
        Of the measure of sparsity.
    """
    figure, (left, right) = new_axes(columns=2, size=(5.8, 3.2))
    seaborn.regplot(data=designed, x="sparsity", y="gain", ax=left, ci=100 * LEVEL,
                    n_boot=RESAMPLES, seed=0, color=BLUE, scatter=False, truncate=True)
    _points(left, designed, BLUE)
    known = paper.dropna(subset=["sparsity"])
    _points(right, known.assign(gain_low=known["gain"], gain_high=known["gain"]), RED)
    for row in known.itertuples():
        right.annotate(row.model, (row.sparsity, row.gain), xytext=(0, 5), fontsize=7,
                       textcoords="offset points", ha="center")
    right.margins(0.35)
    left.set(title=f"{len(designed)} models by design", ylabel="gain by RetMask, points")
    right.set(title="the paper's models", ylabel="")
    for axes in (left, right):
        axes.axhline(0, color=GREY, lw=0.8)
        axes.set_xlabel(f"sparsity ({name})")
    return figure


def _points(axes: Axes, table: pd.DataFrame, colour: str) -> None:
    axes.vlines(table["sparsity"], table["gain_low"], table["gain_high"], color=colour, lw=1)
    axes.hlines(table["gain"], table["sparsity_low"], table["sparsity_high"], color=colour, lw=1)
    axes.plot(table["sparsity"], table["gain"], "o", ms=4, color=colour)
