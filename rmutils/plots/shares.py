"""Figures of shares with their intervals."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rmutils.plots.style import BLUE, colour_of, new_axes


def shares(table: pd.DataFrame, xlabel: str) -> Figure:
    """A dot with a 95 % interval per row.

    Parameters
    ----------
    table : DataFrame
        `label`, `value`, `low`, `high`, all from 0 to 1.
    """
    figure, axes = new_axes(size=(5.8, 0.8 + 0.34 * len(table)))
    rows = np.arange(len(table))
    axes.hlines(rows, table["low"], table["high"], color=BLUE, lw=1.6)
    axes.plot(table["value"], rows, "o", ms=5, color=BLUE)
    axes.set_yticks(rows, table["label"])
    axes.invert_yaxis()
    axes.set(xlabel=xlabel, xlim=(-0.02, 1.02), ylim=(len(table) - 0.5, -0.5))
    return figure


def by_length(models: Mapping[str, pd.DataFrame], ylabel: str) -> Figure:
    """A line per model over prompt lengths, with 95 % intervals and the name at its end.

    Parameters
    ----------
    models : mapping
        Model -> DataFrame of `length`, `value`, `low`, `high`.
    """
    figure, axes = new_axes(size=(5.8, 3.4))
    for shift, (model, table) in enumerate(models.items()):
        errors = np.abs(table[["low", "high"]].to_numpy().T - table["value"].to_numpy())
        axes.errorbar(table["length"] * 1.03**shift, table["value"], yerr=errors, marker="o", ms=4,
                      capsize=3, color=colour_of(model), label=model)
    lengths = sorted({n for table in models.values() for n in table["length"]})
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [f"{n:,}" for n in lengths])
    axes.set(xlabel="prompt length (tokens)", ylabel=ylabel, ylim=(0, 1.03))
    axes.legend(loc="lower left")
    return figure
