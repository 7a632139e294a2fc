"""Figures of the main tables: scores and gains by strategy."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rmutils.plots.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, RED, new_axes

LOOKS = {"Before": (GREY, "o"), "RetMask": (RED, "D"), "Smaller-Model": (BLUE, "s"),
         "Win-Lose-Pair": (ORANGE, "^"), "Non-Retrieval-Mask": (GREEN, "v"),
         "Random-Mask": (PURPLE, "P"), "SFT": (INK, "X"),
         "RC removed": (BLUE, "s"), "RC un-generated": (ORANGE, "^")}
"""Colour and marker of a strategy; what is not in here has that of the text."""


def scores_by_length(table: pd.DataFrame) -> Figure:
    """A panel per model, a line per strategy, over input lengths.

    Parameters
    ----------
    table : DataFrame
        `group` (model), `row` (strategy), `column` (length), `value`: as the paper's tables.
    """
    groups = list(table["group"].unique())
    figure, panels = new_axes(columns=len(groups), size=(5.8, 3.4), squeeze=False)
    for axes, group in zip(panels[0], groups, strict=True):
        part = table[table["group"] == group]
        lengths = list(part["column"].unique())
        for row, line in part.groupby("row", sort=False):
            colour, marker = LOOKS.get(row, (INK, "x"))
            axes.plot([lengths.index(c) for c in line["column"]], line["value"], marker=marker,
                      ms=4, lw=1.2, color=colour, label=row)
        axes.set_xticks(range(len(lengths)), lengths)
        axes.set(title=group, xlabel="input length")
    panels[0, 0].set_ylabel("HELMET score")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def gains_by(table: pd.DataFrame, by: str, title: str = "") -> Figure:
    """Gains over the model before training, with 95 % intervals where there are any.

    Parameters
    ----------
    table : DataFrame
        `strategy`, `effect`, the column `by` (lengths or categories), and `low` and `high`, NaN
        where the gain has no interval.
    title : str, optional
        Whose gains, where several such figures stand below each other.
    """
    places, strategies = list(table[by].unique()), list(table["strategy"].unique())
    figure, axes = new_axes(size=(5.8, 1.6 + 0.11 * len(places) * len(strategies)))
    for i, strategy in enumerate(strategies):
        rows = table[table["strategy"] == strategy]
        y = rows[by].map(places.index) + 0.8 * ((i + 0.5) / len(strategies) - 0.5)
        colour, marker = LOOKS.get(strategy, (INK, "x"))
        axes.hlines(y, rows["low"], rows["high"], color=colour, lw=1.3)
        axes.plot(rows["effect"], y, marker, ms=4, color=colour, label=strategy)
    for edge in np.arange(len(places) - 1) + 0.5:
        axes.axhline(edge, color=GREY, lw=0.4)
    axes.axvline(0, color=GREY, lw=0.8)
    axes.set_yticks(range(len(places)), [str(place) for place in places])
    axes.set(title=title, xlabel="points gained over the model before training",
             ylim=(len(places) - 0.5, -0.5))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
