"""Figure of what masking ever more heads costs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from rmutils.evaluation.sweep_curves import PERPLEXITY, REPETITION
from rmutils.plots.style import GREY, INK, ORANGE, RED

LINES = {"retrieval": ("highest heads", RED, "o", "-"),
         "non-retrieval": ("random others", GREY, "s", "--")}
"""Policy -> label, colour, marker, line."""
SHIFT = 1.04
"""The second line stands this much to the right, so that no bar hides another."""


def masking_sweep(
    curves: Mapping[str, pd.DataFrame], marks: Mapping[float, int],
    spot: tuple[float, float] | None = None,
) -> Figure:
    """A panel per measure: its mean against the number of masked heads.

    Parameters
    ----------
    curves : mapping
        Label -> curve, as from `rmutils.evaluation.sweep_curves.curve`. Bars are 95 % intervals.
    marks : mapping
        tau -> number of heads that reach it; a dotted line each.
    spot : tuple of float, optional
        Numbers of heads between which the panels are shaded.
    """
    figure = Figure(figsize=(5.8, 0.7 + 1.75 * len(curves)))
    panels = figure.subplots(len(curves), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (name, one) in zip(panels, curves.items(), strict=True):
        if spot:
            axes.axvspan(*spot, color=ORANGE, alpha=0.25, lw=0)
        for i, (policy, (label, colour, marker, line)) in enumerate(LINES.items()):
            part = one[one["policy"] == policy]
            errors = np.abs(part[["low", "high"]].to_numpy().T - part["value"].to_numpy())
            axes.errorbar(part["count"] * SHIFT**i, part["value"], yerr=errors, label=label,
                          color=colour, marker=marker, ls=line, ms=4, lw=1.4, capsize=2.5)
        axes.set_ylabel(name)
        if name == PERPLEXITY:
            axes.set_yscale("log")
        elif name == REPETITION:
            axes.set_ylim(-0.01, max(0.1, axes.get_ylim()[1]))
        else:
            axes.set_ylim(-0.03, 1.05)
        for count in marks.values():
            axes.axvline(count, color=INK, lw=0.9, ls=":")
    _count_axis(panels[-1], max(one["count"].max() for one in curves.values()))
    _name_marks(panels[0], marks)
    panels[-1].legend(loc="best", fontsize=8)
    return figure


def _count_axis(axes: Axes, most: int) -> None:
    """Logarithmic, but with a place for 0; ticks at powers of two."""
    axes.set_xscale("symlog", base=2, linthresh=1, linscale=0.6)
    ticks = [0, *(2**i for i in range(int(np.log2(most)) + 1))]
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel="heads masked", xlim=(-0.15, most * 1.12))


def _name_marks(axes: Axes, marks: Mapping[float, int]) -> None:
    """Write each tau above its line; of two lines the left one is named to its left."""
    for count in {*marks.values()}:
        text = " and ".join(f"{tau:g}" for tau in sorted(marks) if marks[tau] == count)
        left = count < max(marks.values())
        axes.annotate(f"tau = {text}", (count, 1), xycoords=("data", "axes fraction"),
                      xytext=(-3 if left else 3, 2), textcoords="offset points",
                      ha="right" if left else "left", va="bottom", fontsize=8)
