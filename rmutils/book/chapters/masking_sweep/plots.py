"""Figures of what masking costs, head by head and along a sweep (chapter 2)."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from rmutils.book.chapters.masking_sweep.sweet_spot import PERPLEXITY, REPETITION
from rmutils.book.experiments.sweep_questions import HAYSTACK, NEXT_WORDS
from rmutils.book.figures import style
from rmutils.book.figures.style import (
    BLUE,
    CALLED,
    GREY,
    INK,
    ORANGE,
    RED,
    WIDTH,
    colour_of,
    new_axes,
)
from rmutils.heads.masking import MATCHED


def heads_alone(losses: pd.DataFrame, tau: float) -> Figure:
    """Needles lost without each head, layer by layer, with 95 % intervals."""
    figure, axes = new_axes(3.2)
    alone = losses[losses["draw"] < 0].reset_index(drop=True)
    retrieval = alone["score"] >= tau
    for part, colour, marker, label in ((~retrieval, BLUE, "o", "other heads"),
                                        (retrieval, RED, "D", "retrieval heads")):
        rows = alone[part]
        axes.vlines(rows.index, rows["low"], rows["high"], color=colour, lw=0.9)
        axes.plot(rows.index, rows["loss"], marker, ms=3.5, color=colour, label=label)
    axes.axhline(0, color=GREY, lw=0.8)
    layers = alone["heads"].str.split(".").str[0]
    for layer, places in alone.groupby(layers).groups.items():
        axes.axvline(max(places) + 0.5, color=GREY, lw=0.5)
        axes.annotate(f"layer {layer}", (sum(places) / len(places), 0), xytext=(0, -14),
                      xycoords=("data", "axes fraction"), textcoords="offset points", ha="center")
    axes.set_xticks([])
    axes.set(xlim=(-0.5, len(alone) - 0.5), ylabel="needles lost without the head")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    return figure


LINES = {"retrieval": ("highest heads", BLUE, "o", "-"),
         "non-retrieval": ("random others", GREY, "s", "--"),
         MATCHED: ("others of the same layers", ORANGE, "^", ":")}
"""Policy -> label, colour, marker, line."""
SHIFT = 1.04  # the second line stands this much to the right, so that no bar hides another


def masking_sweep(curves: Mapping[str, pd.DataFrame], marks: Mapping[float, int],
                  spot: tuple[float, float] | None = None) -> Figure:
    """A panel per measure: its mean against the number of masked heads."""
    figure, panels = new_axes(0.7 + 1.75 * len(curves), rows=len(curves), sharex=True, flat=True)
    for axes, (name, one) in zip(panels, curves.items(), strict=True):
        if spot:
            axes.axvspan(*spot, color=ORANGE, alpha=0.25, lw=0)
        for i, (policy, (label, colour, marker, line)) in enumerate(LINES.items()):
            part = one[one["policy"] == policy]
            if part.empty:
                continue
            style.with_intervals(axes, part["count"] * SHIFT**i, part, label=label, color=colour,
                                 marker=marker, ls=line, ms=4, lw=1.4, capsize=2.5)
        axes.set_ylabel(f"{name}\n(1: a loop)" if name == REPETITION else name)
        if name == PERPLEXITY:
            axes.set_yscale("log")
        else:
            axes.set_ylim(-0.03, 1.05)
        for count in marks.values():
            axes.axvline(count, color=INK, lw=0.9, ls=":")
    _count_axis(panels[-1], max(one["count"].max() for one in curves.values()))
    _name_marks(panels[0], marks)
    panels[-1].legend(loc="best", fontsize=9)
    return figure


OF_MODELS = {HAYSTACK: ("needles", RED, "o", "-"), "tasks": ("tasks", ORANGE, "s", "-"),
             NEXT_WORDS: ("next words", BLUE, "^", "--"),
             REPETITION: ("repeated", GREY, "D", ":")}
"""Measure -> label, colour, marker, line."""


def sweeps_of_models(curves: Mapping[str, Mapping[str, pd.DataFrame]], heads: Mapping[str, int],
                     spot: tuple[float, float]) -> Figure:
    """A panel per model: each measure against the share of its heads that is masked."""
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    panels = figure.subplots(1, len(curves), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (model, own) in zip(panels, curves.items(), strict=True):
        axes.axvspan(*(100 * end for end in spot), color=ORANGE, alpha=0.2, lw=0)
        for i, (name, (label, colour, marker, line)) in enumerate(OF_MODELS.items()):
            if name in own:
                part = own[name].sort_values("count")
                percent = part.assign(**{end: 100 * part[end] for end in ("value", "low", "high")})
                style.with_intervals(axes, 100 * part["count"] / heads[model] * 1.04**i, percent,
                                     label=label, color=colour, marker=marker, ls=line, ms=4,
                                     lw=1.4, capsize=2)
        axes.set_title(f"{CALLED.get(model, model)} ({heads[model]} heads)", fontsize=10)
    axes = panels[0]  # where the legend hides no bar
    axes.set_xscale("symlog", linthresh=1, linscale=0.6)
    ticks = [0, 1, 3, 10, 30]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlim=(-0.2, 36), ylim=(-3, 103))
    axes.legend(loc="upper right", fontsize=9, labelcolor="linecolor")
    figure.supxlabel("heads masked, % of all", fontsize=10)
    figure.supylabel("% of answers, words or spans", fontsize=10)
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
        axes.annotate(f"τ = {text}", (count, 1), xycoords=("data", "axes fraction"),
                      xytext=(-3 if left else 3, 2), textcoords="offset points",
                      ha="right" if left else "left", va="bottom", fontsize=9)


def shares(table: pd.DataFrame, xlabel: str) -> Figure:
    """A dot with a 95 % interval per row."""
    figure, axes = new_axes(0.8 + 0.34 * len(table))
    rows = np.arange(len(table))
    axes.hlines(rows, table["low"], table["high"], color=BLUE, lw=1.6)
    axes.plot(table["value"], rows, "o", ms=5, color=BLUE)
    axes.set_yticks(rows, table["label"])
    axes.invert_yaxis()
    axes.set(xlabel=xlabel, xlim=(-0.02, 1.02), ylim=(len(table) - 0.5, -0.5))
    return figure


def by_length(models: Mapping[str, pd.DataFrame], ylabel: str) -> Figure:
    """A line per model over prompt lengths, with 95 % intervals and the name at its end."""
    figure, axes = new_axes(3.4)
    for shift, (model, table) in enumerate(models.items()):
        style.with_intervals(axes, table["length"] * 1.03**shift, table, marker="o", ms=4,
                             capsize=3, color=colour_of(model), label=model)
    lengths = sorted({n for table in models.values() for n in table["length"]})
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [f"{n:,}" for n in lengths])
    axes.set(xlabel="prompt length (tokens)", ylabel=ylabel, ylim=(0, 1.03))
    axes.legend(loc="lower left")
    return figure
