"""Scores before and after a training: the form of Table 6."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rmutils.plots.style import GREY, colour_of, new_axes

COLUMNS = 3
"""Panels side by side."""
SHIFT = 0.13
"""Before is drawn so much above a model's row, and after below."""


def before_and_after(table: pd.DataFrame, xlabel: str) -> Figure:
    """A panel for each benchmark, a row for each model: a grey dot before, a coloured one after.

    Parameters
    ----------
    table : DataFrame
        `benchmark`, `model`, `before`, `after`, and optionally the ends of their 95 % intervals:
        `before_low`, `before_high`, `after_low`, `after_high`.
    """
    panels, models = (list(table[name].unique()) for name in ("benchmark", "model"))
    lines = -(-len(panels) // COLUMNS)
    figure = Figure(figsize=(5.8, lines * (0.75 + 0.3 * len(models)) + 0.3))
    grid = figure.subplots(lines, min(COLUMNS, len(panels)), sharey=True, squeeze=False).ravel()
    for axes, name in zip(grid, panels, strict=False):
        for row in table[table["benchmark"] == name].itertuples():
            y, colour = models.index(row.model), colour_of(row.model)
            axes.plot((row.before, row.after), (y - SHIFT, y + SHIFT), color=colour, lw=1)
            for when, tone, place in (("before", GREY, y - SHIFT), ("after", colour, y + SHIFT)):
                if hasattr(row, f"{when}_low"):
                    ends = getattr(row, f"{when}_low"), getattr(row, f"{when}_high")
                    axes.hlines(place, *ends, color=tone, lw=1.2)
                axes.plot(getattr(row, when), place, "o", ms=4.5, color=tone, zorder=3)
        axes.set_title(name)
        axes.locator_params(axis="x", nbins=4)
        axes.tick_params(axis="y", labelsize=8)
    for axes in grid[len(panels):]:
        axes.remove()
    for axes in grid[max(0, len(panels) - COLUMNS):len(panels)]:
        axes.set_xlabel(xlabel)
    grid[0].set_yticks(np.arange(len(models)), models)
    grid[0].set_ylim(len(models) - 0.5, -0.5)
    return figure


def nothing(text: str) -> Figure:
    """In the place of a figure that lacks its data: a figure that says so."""
    figure, axes = new_axes(size=(5.8, 0.6))  # without axes a notebook draws nothing
    axes.text(0.5, 0.5, text, ha="center", va="center", color=GREY)
    axes.set_axis_off()
    return figure
