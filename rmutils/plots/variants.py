"""Figures of a model under variants of its attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from rmutils.plots.style import BLUE, GREY, INK, ORANGE, RED

COLUMNS = 4


def places(table: pd.DataFrame, base: str, xlabel: str, ylabel: str) -> Figure:
    """A panel per variant: shares by place, beside those of the plain model.

    Parameters
    ----------
    table : DataFrame
        `variant`, `place`, `value`, `low`, `high`, as from
        `rmutils.evaluation.variants.curves.levels`. Bars are 95 % intervals.
    base : str
        Name of the plain model.
    """
    names = [name for name in table["variant"].unique() if name != base]
    rows = -(-len(names) // COLUMNS)
    figure = Figure(figsize=(5.8, 0.8 + 1.45 * rows))
    panels = figure.subplots(rows, min(COLUMNS, len(names)), sharex=True, sharey=True,
                             squeeze=False).flat
    for axes, name in zip(panels, names, strict=False):
        _line(axes, table[table["variant"] == base], GREY, "s", "--", base)
        _line(axes, table[table["variant"] == name], BLUE, "o", "-", "variant", shift=0.03)
        axes.set_title(name, fontsize=8)
        axes.set(ylim=(-0.05, 1.05), xlim=(-0.08, 1.11))
        axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
        axes.tick_params(labelsize=8, labelbottom=True)
    for axes in figure.axes[len(names):]:
        axes.set_axis_off()
    figure.supxlabel(xlabel, fontsize=9)
    figure.supylabel(ylabel, fontsize=9)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center",
                  ncols=2, fontsize=8)
    return figure


def _line(axes: Axes, part: pd.DataFrame, colour: str, marker: str, line: str, label: str,
          shift: float = 0.0) -> None:
    errors = np.abs(part[["low", "high"]].to_numpy().T - part["value"].to_numpy())
    axes.errorbar(part["place"] + shift, part["value"], yerr=errors, color=colour, marker=marker,
                  ls=line, ms=3, lw=1.1, capsize=2, elinewidth=0.9, label=label)


def heads(
    variants: Mapping[str, tuple[np.ndarray, np.ndarray]], retrieval: Sequence[tuple[int, int]]
) -> Figure:
    """A panel per variant: scores of all heads under plain attention and under the variant.

    Parameters
    ----------
    variants : mapping
        Name -> scores under plain attention and under the variant, (layers, heads) each.
    retrieval : sequence of (layer, head)
        Heads that are marked. On the dashed line nothing changes.
    """
    columns = min(3, len(variants))
    rows = -(-len(variants) // columns)
    figure = Figure(figsize=(0.4 + 1.8 * columns, 0.8 + 1.75 * rows))
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat
    for axes, (name, (before, after)) in zip(panels, variants.items(), strict=False):
        marked = np.zeros(before.shape, dtype=bool)
        marked[tuple(zip(*retrieval, strict=True))] = True
        axes.plot([0, 1], [0, 1], color=GREY, lw=0.8, ls="--")
        for part, colour, marker, label in ((~marked, GREY, "o", "other heads"),
                                            (marked, RED, "D", "retrieval heads")):
            axes.plot(before[part], after[part], marker, color=colour, ms=3.5, label=label)
        axes.set_title(name, fontsize=8)
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
        axes.tick_params(labelsize=8, labelbottom=True)
    for axes in figure.axes[len(variants):]:
        axes.set_axis_off()
    figure.supxlabel("retrieval score under plain attention", fontsize=9)
    figure.supylabel("under the variant", fontsize=9)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center",
                  ncols=2, fontsize=8)
    return figure


def sweep(
    measures: Mapping[str, pd.DataFrame], xlabel: str, *, marks: Mapping[str, float] = {},
    spot: tuple[float, float] | None = None,
) -> Figure:
    """A panel per measure over one setting of a variant.

    Parameters
    ----------
    measures : mapping
        Label -> `x` (above 0), `value`, `low`, `high`. Bars are 95 % intervals. A measure whose
        values exceed 1 is drawn on a logarithmic axis.
    marks : mapping
        Text -> x: a dotted line.
    spot : tuple of float, optional
        Ends of a shaded part.
    """
    figure = Figure(figsize=(5.8, 0.7 + 1.45 * len(measures)))
    panels = figure.subplots(len(measures), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (name, part) in zip(panels, measures.items(), strict=True):
        if spot:
            axes.axvspan(*spot, color=ORANGE, alpha=0.25, lw=0)
        for x in marks.values():
            axes.axvline(x, color=INK, lw=0.9, ls=":")
        errors = np.abs(part[["low", "high"]].to_numpy().T - part["value"].to_numpy())
        axes.errorbar(part["x"], part["value"], yerr=errors, color=RED, marker="o", ms=4, lw=1.4,
                      capsize=2.5)
        axes.set_ylabel(name, fontsize=9)
        if part["value"].max() > 1:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(MaxNLocator(4))
            axes.yaxis.set_minor_locator(NullLocator())
            axes.yaxis.set_major_formatter("{x:g}")
        else:
            axes.set_ylim(-0.03, 1.05)
    ticks = sorted({*next(iter(measures.values()))["x"]})
    panels[-1].set_xscale("log", base=2)
    panels[-1].set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    panels[-1].xaxis.set_minor_locator(NullLocator())
    panels[-1].set_xlabel(xlabel)
    for text, x in marks.items():
        panels[0].annotate(text, (x, 1), xycoords=("data", "axes fraction"), xytext=(3, 2),
                           textcoords="offset points", ha="left", va="bottom", fontsize=8)
    return figure
