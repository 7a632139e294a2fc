"""Figures of what large models and long contexts cost."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from rmutils.book.figures.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, RED, new_axes

COLOURS = (BLUE, RED, GREEN, ORANGE, PURPLE)  # colours of models, in their order


def short(tokens: float) -> str:
    """A number of tokens as K or M, in powers of 1,024."""
    for size, sign in ((1 << 20, "M"), (1 << 10, "K")):
        if tokens >= size:
            return f"{tokens / size:.3g}{sign}"
    return f"{tokens:.0f}"


def memory(curves: Mapping[str, pd.DataFrame], rooms: Mapping[str, float]) -> Figure:
    """Bytes of weights with keys and values by the length of a text, and what machines hold."""
    figure, axes = new_axes(3.8)
    starts: list[float] = []
    for k, ((model, table), colour) in enumerate(zip(curves.items(), COLOURS, strict=False)):
        axes.plot(table["tokens"], table["bytes"] / 1e9, color=colour, lw=1.6,
                  ls="--" if k % 2 else "-")  # two may lie on each other
        start = table["bytes"].iloc[0] / 1e9
        low = any(0.8 < start / other < 1.25 for other in starts)  # on the line of another
        starts.append(start)
        axes.annotate(model, (table["tokens"].iloc[0], start), xytext=(0, -5 if low else 5),
                      textcoords="offset points", color=colour, va="top" if low else "bottom",
                      fontsize=9)
    for label, size in rooms.items():
        axes.axhline(size / 1e9, color=INK, lw=0.8, ls=":")
        axes.annotate(label, (0.99, size / 1e9), xycoords=("axes fraction", "data"), ha="right",
                      xytext=(0, 2), textcoords="offset points", fontsize=9)
    _tokens(axes, next(iter(curves.values()))["tokens"])
    axes.set(yscale="log", ylabel="memory (GB)")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.margins(y=0.1)
    return figure


def work(curves: Mapping[str, pd.DataFrame]) -> Figure:
    """Attention's share of the work of reading, and seconds of one accelerator, by length."""
    figure, (left, right) = new_axes(3.4, columns=2)
    for (model, table), colour in zip(curves.items(), COLOURS, strict=False):
        left.plot(table["tokens"], table["share"], color=colour, label=model, lw=1.6)
        right.plot(table["tokens"], table["seconds"], color=colour, lw=1.6)
    left.axhline(0.5, color=INK, lw=0.8, ls=":")
    for axes in (left, right):
        _tokens(axes, next(iter(curves.values()))["tokens"], every=2)
    left.set(ylim=(0, 1), ylabel="attention's share of the work")
    right.set(yscale="log", ylabel="seconds on one accelerator")
    right.yaxis.set_major_formatter("{x:g}")
    figure.legend(ncols=2, fontsize=9, loc="outside upper center")
    return figure


def exchange(ways: Mapping[str, pd.DataFrame]) -> Figure:
    """Time to send over time to compute by the number of accelerators, for both ways to share."""
    figure, panels = new_axes(3.2, columns=2, sharey=True)
    for axes, way in zip(panels, ("tensor parallel", "context parallel"), strict=True):
        for (label, table), colour in zip(ways.items(), COLOURS, strict=False):
            axes.plot(table["gpus"], table[way], marker="o", ms=3, color=colour, label=label)
        axes.axhline(1, color=GREY, lw=0.8, ls=":")
        axes.set_xscale("log", base=2)
        ticks = [int(n) for n in next(iter(ways.values()))["gpus"]]
        axes.set_xticks(ticks, [str(n) for n in ticks], fontsize=9)
        axes.set(title=way, xlabel="accelerators", yscale="log")
    panels[0].set_ylabel("seconds sent / computed")
    figure.legend(*panels[0].get_legend_handles_labels(), ncols=4, fontsize=9,
                  loc="outside upper center")
    return figure


def predicted_times(times: pd.DataFrame, lines: Mapping[str, pd.DataFrame]) -> Figure:
    """Measured seconds by length, and what formulas predict from the shorter texts."""
    figure, axes = new_axes(3.0)
    for (label, table), colour, style in zip(lines.items(), (GREEN, ORANGE), ("-", "--"),
                                             strict=True):
        axes.plot(table["length"], table["seconds"], color=colour, ls=style, label=label, lw=1.4)
    axes.plot(times["length"], times["seconds"], "o", color=BLUE, ms=4, mfc="none",
              label="measured, each round")
    _tokens(axes, sorted(set(times["length"])))
    axes.set(yscale="log", ylabel="processor seconds")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.legend(fontsize=9)
    return figure


def _tokens(axes: Axes, tokens: Sequence[float], every: int = 1) -> None:
    """An axis of lengths, each twice the one before or more."""
    axes.set_xscale("log", base=2)
    ticks = [*tokens][::every]
    axes.set_xticks(ticks, [short(n) for n in ticks], fontsize=9)
    axes.minorticks_off()
    axes.set_xlabel("tokens of the text")
