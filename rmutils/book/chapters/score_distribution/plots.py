"""Gain against sparsity, and how heads form while a model is trained."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from rmutils.book.chapters.your_own_model import Forecast
from rmutils.book.figures.style import (
    BLUE,
    FOR_A_PHONE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PHONE,
    PURPLE,
    RED,
    WIDTH,
    new_axes,
)
from rmutils.book.findings import Finding
from rmutils.evaluation.formation import Formation
from rmutils.stats import LEVEL, RESAMPLES


def gain_over_sparsity(designed: pd.DataFrame, paper: pd.DataFrame, name: str) -> Figure:
    """Designed models with a line and its 95 % band, and beside them the paper's."""
    figure, (left, right) = new_axes(3.2, columns=2)
    seaborn.regplot(data=designed, x="sparsity", y="gain", ax=left, ci=100 * LEVEL,
                    n_boot=RESAMPLES, seed=0, color=BLUE, scatter=False, truncate=True)
    _points(left, designed, BLUE)
    known = paper.dropna(subset=["sparsity"])
    _points(right, known.assign(gain_low=known["gain"], gain_high=known["gain"]), RED)
    for row in known.itertuples():
        right.annotate(row.model, (row.sparsity, row.gain), xytext=(0, 5), fontsize=9,
                       textcoords="offset points", ha="center")
    right.margins(0.35)
    left.set(title=f"{len(designed)} models by design", ylabel="gain by RetMask, points")
    right.set(title="the paper's models", ylabel="")
    for axes in (left, right):
        axes.axhline(0, color=GREY, lw=0.8)
        axes.set_xlabel(f"sparsity ({name})")
    return figure


def gain_by_design(panels: Mapping[str, pd.DataFrame], name: str) -> Figure:
    """Gain over sparsity, a panel per comparison, with a label of each design."""
    figure, axes = new_axes(3.2, columns=len(panels), squeeze=False)
    for one, (title, table) in zip(axes[0], panels.items(), strict=True):
        _points(one, table, BLUE)
        for row in table.itertuples():
            one.annotate(row.model.split()[0], (row.sparsity, row.gain), xytext=(4, 4),
                         fontsize=9, textcoords="offset points", color=INK)
        one.axhline(0, color=GREY, lw=0.8)
        one.set(xlabel=f"sparsity ({name})", ylabel=title)
    return figure


def _points(axes: Axes, table: pd.DataFrame, colour: str) -> None:
    axes.vlines(table["sparsity"], table["gain_low"], table["gain_high"], color=colour, lw=1)
    axes.hlines(table["gain"], table["sparsity_low"], table["sparsity_high"], color=colour, lw=1)
    axes.plot(table["sparsity"], table["gain"], "o", ms=4, color=colour)


def forecast_figure(found: Mapping[str, Forecast], sparsity: tuple[float, float, float], name: str
              ) -> Figure:
    """A panel per kind of models: each with its gain, the line with its 95 % prediction band."""
    figure, panels = new_axes(2.9, columns=len(found), squeeze=False)
    value, low, high = sparsity
    for axes, colour, (kind, one) in zip(panels[0], (BLUE, RED), found.items(), strict=False):
        axes.axvspan(low, high, color=ORANGE, alpha=0.35, lw=0)
        axes.axvline(value, color=ORANGE, lw=1.6)
        axes.axhline(0, color=GREY, lw=0.8)
        known = one.known
        axes.plot(known["sparsity"], known["gain"], "o", ms=4, color=colour)
        if one.line:
            x = np.linspace(min(known["sparsity"].min(), low), max(known["sparsity"].max(), high))
            drawn = one.line.at(x)
            axes.plot(x, drawn.value, color=colour, lw=1)
            axes.fill_between(x, drawn.low, drawn.high, color=colour, alpha=0.12, lw=0)
            axes.set_ylim(*_limits(known["gain"].to_numpy()))
        axes.set(title=f"{kind} ({one.models})", xlabel=f"sparsity ({name})")
    panels[0, 0].set_ylabel("gain by RetMask, points")
    return figure


def _limits(gains: np.ndarray) -> tuple[float, float]:
    """Room around the gains, though a band may leave it: three points have a band of hundreds."""
    room = max(np.ptp(gains), 1)
    return min(gains.min(), 0) - room, gains.max() + room


TOP_COLOURS = (BLUE, ORANGE, GREEN, PURPLE)
"""So many heads, those that score highest at the end, get a colour and a label."""
FIRST = 100
"""Up to this step the axis is linear, so that step 0 has a place; then it is logarithmic."""
TICKS = (0, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000)

Label = tuple[float, str, str]  # height, text, colour


FORMING = {"retrieval": ("best head copies", BLUE),
           "prefix_matching": ("best head matches", ORANGE), "needles": ("needles found", INK)}
"""What is drawn of each snapshot."""


def heads_before_needles(results: Mapping[str, Formation],
                         begun: Mapping[str, Mapping[str, Finding]]) -> Figure:
    """The two scores of the best head and the needles found, by step, a panel for each model; the
    step at which each has begun has a dot."""
    figure, small = (_forming(results, begun, width) for width in (WIDTH, PHONE))
    FOR_A_PHONE[figure] = small
    return figure


def _forming(results: Mapping[str, Formation], begun: Mapping[str, Mapping[str, Finding]],
             width: float) -> Figure:
    figure, panels = new_axes(1.75 * len(results), rows=len(results), sharex=True, width=width,
                              flat=True)
    for axes, (name, result) in zip(panels, results.items(), strict=True):
        best = result.heads.groupby("step")[["retrieval", "prefix_matching"]].max()
        shares = 100 * best.assign(needles=result.steps.set_index("step")["found"])
        for what, (text, colour) in FORMING.items():
            axes.plot(shares[what], color=colour, lw=1.8, label=text,
                      ls="--" if what == "needles" else "-")
            step = begun[name][what].value
            axes.plot(step, shares[what][step], "o", ms=7, color=colour, label=text)
        _label(axes, shares.index[-1], [(shares[what].iloc[-1], text, colour)
                                        for what, (text, colour) in FORMING.items()], apart=0.13)
        axes.set(ylim=(0, 105), ylabel="%")
        axes.set_title(name, loc="left", fontweight="bold")
    panels[-1].set(xlabel="training step", xlim=(0, None))
    return figure


def plot_formation(result: Formation) -> Figure:
    """Copying of random tokens, then both scores of each head, by step of the training."""
    figure, (copying, matching, retrieving) = new_axes(6.6, rows=3, sharex=True)
    steps, heads = result.steps, result.heads
    last = steps["step"].iloc[-1]

    ends = []
    for column, text, colour in (("first_copy_loss", "first copy", GREY),
                                 ("second_copy_loss", "second copy", RED)):
        copying.plot(steps["step"], steps[column], color=colour, marker="o", ms=2.5)
        ends.append((steps[column].iloc[-1], text, colour))
    copying.set(ylabel="loss (nats per token)",
                ylim=(0, 1.1 * steps[["first_copy_loss", "second_copy_loss"]].max(axis=None)))
    _label(copying, last, ends)

    _label(matching, last, _draw_heads(matching, heads, "prefix_matching"))
    ends = _draw_heads(retrieving, heads, "retrieval")
    retrieving.fill_between(steps["step"], steps["found_low"], steps["found_high"], color=INK,
                            alpha=0.1, lw=0)
    retrieving.plot(steps["step"], steps["found"], color=INK, ls="--", lw=1.2)
    _label(retrieving, last, [*ends, (steps["found"].iloc[-1], "needles found", INK)])

    retrieving.set_xscale("symlog", linthresh=FIRST, linscale=0.4)
    shown = [tick for tick in TICKS if tick <= last]
    retrieving.set_xticks(shown, [f"{tick:,}" for tick in shown])
    retrieving.xaxis.set_minor_locator(NullLocator())
    retrieving.set(xlabel="training step", xlim=(0, last))
    return figure


def _draw_heads(axes: Axes, heads: pd.DataFrame, measure: str) -> list[Label]:
    """A line for each head; the labels of the top ones."""
    final = heads[heads["step"] == heads["step"].max()]
    top = final.nlargest(len(TOP_COLOURS), "retrieval")[["layer", "head"]]
    colours = dict(zip(top.itertuples(index=False, name=None), TOP_COLOURS, strict=False))
    ends = []
    for head, one in heads.groupby(["layer", "head"]):
        colour = colours.get(head)
        axes.plot(one["step"], one[measure], color=colour or GREY, lw=1.8 if colour else 0.9,
                  alpha=1 if colour else 0.6, zorder=3 if colour else 2)
        if colour:
            ends.append((one[measure].iloc[-1], "{}-{}".format(*head), colour))
        if colour and measure == "retrieval":
            axes.fill_between(one["step"], one["retrieval_low"], one["retrieval_high"],
                              color=colour, alpha=0.15, lw=0)
    axes.set(ylabel=f"{measure.replace('_', ' ')} score", ylim=(0, 1.05))
    return ends


def _label(axes: Axes, x: float, labels: Sequence[Label], apart: float = 0.08) -> None:
    """Write labels to the right of where lines end, in their order, none on another."""
    labels = sorted(labels)
    bottom, top = axes.get_ylim()
    steps = apart * (top - bottom) * np.arange(len(labels))
    free = np.array([height for height, _, _ in labels]) - steps
    pushed_up = np.maximum.accumulate(free)
    pushed_down = np.minimum.accumulate(free[::-1])[::-1]
    heights = steps + ((pushed_up + pushed_down) / 2).clip(bottom, top - steps[-1])
    for height, (_, text, colour) in zip(heights, labels, strict=True):
        axes.annotate(text, (x, height), xytext=(5, 0), textcoords="offset points", va="center",
                      fontsize=9, color=colour, annotation_clip=False)
