"""Figures of the Olmo 3 recipe: positions, packing, and slices of a sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from rmutils.plots.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, RED, new_axes

COLOURS = {"YaRN, full layers": RED, "YaRN, all layers": ORANGE, "YaRN": RED,
           "interpolation": BLUE, "NTK-aware": GREEN, "larger base": PURPLE,
           "no extension": GREY, "as trained": GREY}
"""By method."""
POINTS = 500
"""Lengths at which a curve is drawn, however many documents there are."""


def wavelengths(models: Mapping[str, tuple[pd.DataFrame, int, int]]) -> Figure:
    """Effective wavelength of each pair of dimensions by method, and how much longer it became.

    Parameters
    ----------
    models : mapping
        Title -> (DataFrame of pairs x methods with wavelengths in tokens, one column `as trained`;
        window trained; window wanted).
    """
    figure = Figure(figsize=(5.8, 4.6))
    grid = figure.subplots(2, len(models), sharex="col", sharey="row", squeeze=False,
                           height_ratios=(3, 2))
    for (above, below), (title, (table, trained, wanted)) in zip(grid.T, models.items(),
                                                                 strict=True):
        for method, waves in table.items():
            style = {"color": COLOURS[method], "lw": 1.4,
                     "ls": "--" if method == "as trained" else "-"}
            above.plot(table.index, waves, label=method, **style)
            below.plot(table.index, waves / table["as trained"], **style)
        for window in (trained, wanted):
            above.axhline(window, color=INK, lw=0.8, ls=":")
            above.annotate(f"{window:,} tokens", (0, window), xytext=(0, 2),
                           textcoords="offset points", fontsize=7)
        above.set(yscale="log", title=title)
        below.set(yscale="log", xlabel="pair of dimensions")
    factors = [1, 2, 4, 8, 16]
    grid[1, 0].set_yticks(factors, [f"{factor}x" for factor in factors])
    grid[1, 0].yaxis.set_minor_locator(NullLocator())
    grid[0, 0].set_ylabel("wavelength (tokens)")
    grid[1, 0].set_ylabel("longer by")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), ncols=3, fontsize=8,
                  loc="outside upper center")
    return figure


def piece_lengths(ways: Mapping[str, Sequence[int]], capacity: int) -> Figure:
    """Share of all tokens that lie in pieces of at least so many tokens.

    Parameters
    ----------
    ways : mapping
        Label -> tokens of each piece.
    capacity : int
        Tokens of an instance.
    """
    figure, axes = new_axes(size=(5.8, 3.0))
    left, right = max(capacity / 1000, 1), capacity * 6
    grid = np.geomspace(left, right, POINTS)
    for (label, lengths), colour in zip(ways.items(), (GREY, BLUE, ORANGE), strict=False):
        pieces = np.sort(np.asarray(lengths))
        shorter = np.concatenate([[0], pieces.cumsum()]) / pieces.sum()
        axes.plot(grid, 1 - shorter[np.searchsorted(pieces, grid)], color=colour, label=label,
                  lw=1.6)
    axes.axvline(capacity, color=INK, lw=0.8, ls=":")
    axes.annotate("an instance", (capacity, 1), xytext=(3, 0), textcoords="offset points",
                  fontsize=8, va="top")
    axes.set(xscale="log", xlim=(left, right), ylim=(0, 1.03),
             xlabel="at least so many tokens in one piece", ylabel="share of all tokens")
    axes.legend(loc="lower left", fontsize=8)
    return figure


def slices(sent: Mapping[str, pd.DataFrame], waiting: Mapping[str, pd.DataFrame],
           used: int) -> Figure:
    """Context parallelism by its number of ranks: what each receives, and who waits for whom.

    Parameters
    ----------
    sent : mapping
        Label -> DataFrame of `ranks`, `gigabytes` (received by a device in a forward pass).
    waiting : mapping
        Label -> DataFrame of `ranks`, `ratio` (work of the last slice over the mean).
    used : int
        The number of ranks of the recipe, which is marked.
    """
    figure, (left, right) = new_axes(columns=2, size=(5.8, 3.2))
    for axes, tables, column, colours in ((left, sent, "gigabytes", (RED, PURPLE)),
                                          (right, waiting, "ratio", (BLUE, GREEN, ORANGE))):
        for (label, table), colour in zip(tables.items(), colours, strict=False):
            axes.plot(table["ranks"], table[column], marker="o", ms=3, color=colour, label=label)
        axes.axvline(used, color=INK, lw=0.8, ls=":")
        axes.set_xscale("log", base=2)
        ticks = sorted({n for table in tables.values() for n in table["ranks"]})[::2]
        axes.set_xticks(ticks, [f"{n:,}" for n in ticks], fontsize=8)
        axes.set_xlabel("ranks")
        axes.legend(fontsize=8)
    left.set(ylabel="received by a device (GB)", ylim=(0, None))
    right.set(ylabel="work of the last slice / mean", ylim=(0, None))
    return figure
