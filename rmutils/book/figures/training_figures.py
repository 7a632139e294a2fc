"""Figures about preference pairs and training on them."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rmutils.book import verdicts as rule
from rmutils.book.figures import style

COLOURS = (style.BLUE, style.ORANGE, style.GREEN, style.RED, style.PURPLE, style.GREY)
CURVES = {"loss": "loss (nats)", "margin": "reward margin", "accuracy": "accuracy"}


def training_curves(trainings: Mapping[str, Sequence[pd.DataFrame]]) -> Figure:
    """Loss, margin and accuracy by step, each step on its own batch; dotted: ln 2."""
    figure, panels = style.new_axes(5.6, rows=3, sharex=True)
    for colour, (label, curves) in zip(COLOURS, trainings.items(), strict=False):
        for number, curve in enumerate(curves):
            for axes, column in zip(panels, CURVES, strict=True):
                axes.plot(curve["step"], curve[column], color=colour, lw=1.4, marker="o", ms=2.5,
                          label=None if number else label)
    panels[0].axhline(math.log(2), color=style.GREY, lw=0.8, ls=":")
    panels[1].axhline(0, color=style.GREY, lw=0.8, ls=":")
    for axes, name in zip(panels, CURVES.values(), strict=True):
        axes.set(ylabel=name)
    panels[2].set(xlabel="training step", ylim=(-0.03, 1.03))
    panels[0].legend(fontsize=9)
    return figure


def before_after(heads: pd.DataFrame, top: int) -> Figure:
    """The layout of Figure 5: scores before and after in the order of the scores before."""
    figure, (scores, changes) = style.new_axes(5.0, rows=2, sharex=True, height_ratios=(3, 2))
    shown = heads.head(top)
    size = 4 if len(shown) < 80 else 2.5
    scores.fill_between(shown["rank"], shown["before_low"], shown["before_high"], color=style.GREY,
                        alpha=0.25, lw=0)
    scores.plot(shown["rank"], shown["before"], color=style.INK, lw=1.6, label="before", zorder=4)
    for retrieval, colour in ((True, style.RED), (False, style.GREEN)):
        part = shown[shown["retrieval"] == retrieval]
        what = "retrieval heads" if retrieval else "others"
        for axes, name in ((scores, "after"), (changes, "change")):
            axes.vlines(part["rank"], part[f"{name}_low"], part[f"{name}_high"], color=colour,
                        lw=0.9)
            axes.plot(part["rank"], part[name], "o", ms=size, color=colour, alpha=0.6,
                      label=f"after, {what}")
    changes.axhline(0, color=style.GREY, lw=0.8)
    count = int(heads["retrieval"].sum())
    if heads["retrieval"].head(count).all():
        for axes in (scores, changes):
            axes.axvline(count + 0.5, color=style.RED, lw=1, ls="--")
    scores.set(ylabel="retrieval score", ylim=(0, None), title="scores before and after")
    changes.set(title="after minus before", xlabel="heads in order of their score before",
                ylabel="change", xlim=(0, len(shown) + 1))
    scores.legend()
    return figure


LOOKS = {"Before": (style.GREY, "o"), "RetMask": (style.RED, "D"),
         "Smaller-Model": (style.BLUE, "s"),
         "Win-Lose-Pair": (style.ORANGE, "^"), "Non-Retrieval-Mask": (style.GREEN, "v"),
         "Random-Mask": (style.PURPLE, "P"), "SFT": (style.INK, "X"),
         "RC removed": (style.BLUE, "s"), "RC un-generated": (style.ORANGE, "^")}
"""Colour and marker of a strategy; what is not in here has that of the text."""


def scores_by_length(table: pd.DataFrame) -> Figure:
    """A panel per model, a line per strategy, over input lengths."""
    groups = list(table["group"].unique())
    figure, panels = style.new_axes(3.4, columns=len(groups), squeeze=False)
    for axes, group in zip(panels[0], groups, strict=True):
        part = table[table["group"] == group]
        lengths = list(part["column"].unique())
        for row, line in part.groupby("row", sort=False):
            colour, marker = LOOKS.get(row, (style.INK, "x"))
            axes.plot([lengths.index(c) for c in line["column"]], line["value"], marker=marker,
                      ms=4, lw=1.2, color=colour, label=row)
        axes.set_xticks(range(len(lengths)), lengths)
        axes.set(title=group, xlabel="input length")
    panels[0, 0].set_ylabel("HELMET score")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


COLUMNS = 3  # panels side by side
SHIFT = 0.13  # before is drawn so much above a model's row, and after below


def before_and_after(table: pd.DataFrame, xlabel: str) -> Figure:
    """A panel for each benchmark, a row for each model: a grey dot before, a coloured one after,
    and a pale band that chance allows around the first."""
    panels, models = (list(table[name].unique()) for name in ("benchmark", "model"))
    lines = -(-len(panels) // COLUMNS)
    figure, grid = style.new_axes(lines * (0.75 + 0.3 * len(models)) + 0.3, lines,
                            min(COLUMNS, len(panels)), sharey=True, flat=True)
    for axes, name in zip(grid, panels, strict=False):
        for row in table[table["benchmark"] == name].itertuples():
            y, colour = models.index(row.model), style.colour_of(row.model)
            axes.hlines(y, row.before - row.chance, row.before + row.chance, color=style.PALE,
                        lw=12)
            axes.plot((row.before, row.after), (y - SHIFT, y + SHIFT), color=colour, lw=1)
            for when, tone, place in (("before", style.GREY, y - SHIFT),
                                      ("after", colour, y + SHIFT)):
                axes.plot(getattr(row, when), place, "o", ms=4.5, color=tone, zorder=3)
        axes.set_title(name)
        axes.locator_params(axis="x", nbins=4)
        axes.tick_params(axis="y", labelsize=9)
    for axes in grid[len(panels):]:
        axes.remove()
    for axes in grid[max(0, len(panels) - COLUMNS):len(panels)]:
        axes.set_xlabel(xlabel)
    grid[0].set_yticks(np.arange(len(models)), models)
    grid[0].set_ylim(len(models) - 0.5, -0.5)
    return figure


def nothing(text: str) -> Figure:
    """Stand-in for a figure that lacks its data: a figure that says so."""
    figure, axes = style.new_axes(0.6)  # without axes a notebook draws nothing
    axes.text(0.5, 0.5, text, ha="center", va="center", color=style.GREY)
    axes.set_axis_off()
    return figure


SIGNS = {rule.REACHED: ("✓✓", "for"), rule.SHOWN: ("✓", "for"),
         rule.SMALLER: ("✓&lt;", "part"), rule.PARTLY: ("½", "part"),
         rule.EXCLUDED: ("&lt;", "small"), rule.AGAINST: ("✗", "against"),
         rule.UNDECIDED: ("?", "open"), rule.BLIND: ("–", "blind"), rule.NOT_RUN: ("…", "blind"),
         rule.UNTESTABLE: ("·", "blind")}
"""Sign and colour of each verdict; the sign alone says it, too."""
