"""The figures of the front page."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter

from rmutils.book.experiments.masked_needles import MATCHED, TOP, WHOLE
from rmutils.book.figures import style
from rmutils.book.figures.style import (
    BLUE,
    CALLED,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    new_axes,
)

WIDTH = 4.9  # inches: narrower than a chapter's, so that a phone shows the labels without scrolling
FONT = 10
SIZES = {"smollm2-135m": ("SmolLM2, 135M", BLUE), "gemma3-270m": ("Gemma 3, 270M", ORANGE),
         "qwen2.5-coder-0.5b": ("Qwen2.5-Coder, 0.5B", GREEN),
         "qwen2.5-coder-1.5b": ("Qwen2.5-Coder, 1.5B", PURPLE)}
"""Name and colour of each model, in order of size."""
NAMED = {"smollm2-135m": (10, 16, "left"), "gemma3-270m": (8, -12, "left"),
         "qwen2.5-coder-0.5b": (-12, -8, "right"), "qwen2.5-coder-1.5b": (-10, 118, "left")}
"""Where a model's name stands beside its dot, in points, so that it crosses no curve."""
COMPARED = {"non-retrieval-mask": "Other heads switched off",
            "random-mask": "Random heads switched off",
            "sft": "Training on whole answers", "before": "No training"}
ROWS = 60  # runs in a row of the figure of published runs


def in_a_chapter(draw: Callable[..., Figure], *of: object) -> Figure:
    """Draw a figure of the front page as wide as a chapter's, and as it is for a phone."""
    figure = draw(*of, width=style.WIDTH)
    style.FOR_A_PHONE[figure] = draw(*of)
    return figure


def few_heads(shape: tuple[int, int], heads: Sequence[tuple[int, int]],
              shares: pd.DataFrame) -> Figure:
    """Draw all heads of a model, those that are masked among them, and what it finds without."""
    figure, (grid, bars) = new_axes(3.8, rows=2, width=WIDTH, height_ratios=[1.25, 1])
    layer, head = np.indices(shape).reshape(2, -1)
    masked = np.array([(i, j) in {*heads} for i, j in zip(layer, head, strict=True)])
    for chosen, colour in ((~masked, PALE), (masked, BLUE)):
        grid.scatter(layer[chosen], head[chosen], s=30, marker="s", color=colour, lw=0)
    grid.invert_yaxis()
    grid.set(ylabel="head", yticks=[0, shape[1] - 1], xticks=[0, 10, 20, shape[0] - 1], xlabel=(
        f"layer\n(all {len(layer)} heads; blue: the {len(heads)} with the highest scores)"))
    grid.spines[:].set_visible(False)
    grid.tick_params(length=0)
    names = {WHOLE: ("nothing switched off", GREY), TOP: (f"without these {len(heads)}", BLUE),
             MATCHED: (f"without {len(heads)} others\nof the same layers", PALE)}
    rows = shares.set_index("policy")
    for place, (policy, (_, colour)) in enumerate(names.items()):
        value, low, high = rows.loc[policy, ["value", "low", "high"]].astype(float)
        bars.barh(-place, value, color=colour, height=0.62)
        bars.plot([low, high], [-place, -place], color=INK, lw=1.2)
        bars.text(high + 0.015, -place, f"{100 * value:.0f} %", va="center", weight="bold")
    bars.set(xlim=(0, 1), yticks=[0, -1, -2], yticklabels=[name for name, _ in names.values()],
             xlabel="needles found (line: 95 % interval)")
    bars.xaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    bars.tick_params(axis="y", length=0)
    bars.spines["left"].set_visible(False)
    return figure


def heads_that_hold(shares: pd.DataFrame, halves: Mapping[str, float]) -> Figure:
    """Draw the share of needles that each model finds as more heads are switched off."""
    figure, axes = new_axes(3.6, width=WIDTH)
    for model, (name, colour) in SIZES.items():
        own = shares[(shares["model"] == model) & shares["policy"].isin([WHOLE, TOP])]
        own = own.sort_values("count")
        x = own["count"].clip(lower=0.5)
        axes.fill_between(x, own["low"], own["high"], color=colour, alpha=0.13, lw=0)
        axes.plot(x, own["value"], color=colour, lw=1.8)
        at = own.loc[own["count"] == halves[model], "value"].item()
        axes.plot(halves[model], at, "o", ms=8, color=colour, mec="white", zorder=3)
        across, up, side = NAMED[model]
        axes.annotate(f"{name}: {halves[model]:.0f}".replace("-Coder, ", "-Coder\n"),
                      (halves[model], at), color=colour, weight="bold",
                      textcoords="offset points", xytext=(across, up), va="center", ha=side)
    axes.set(xscale="log", xlim=(0.45, 140), ylim=(-0.14, 1.02),
             xlabel="heads switched off, highest scores first", ylabel="needles found")
    ticks = [1, 2, 4, 8, 16, 32, 64, 128]
    axes.xaxis.set_major_locator(FixedLocator([0.5, *ticks]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels(["none", *map(str, ticks)])
    axes.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    return figure


def beside_controls(rows: pd.DataFrame, claimed: Mapping[str, float],
                    width: float = WIDTH) -> Figure:
    """Draw what RetMask scores beyond each comparison, model by model, pooled, and in the paper."""
    lines: list[tuple[float, str, str, Any]] = []  # place, label, colour and what is drawn
    y = 0.0
    for against in rows["against"].unique():
        own = rows[rows["against"] == against]
        drawn = [(COMPARED[against], INK, None), *(
            (CALLED.get(one.model, one.model) or "pooled", GREY if one.model else BLUE, one)
            for one in own.itertuples())]
        if against in claimed:
            drawn.append(("the paper, Llama-3.1", ORANGE, claimed[against]))
        lines += [(y + place, *line) for place, line in enumerate(drawn)]
        y += len(drawn) + 0.6
    figure, axes = new_axes(0.6 + 0.17 * y, width=width)
    axes.axvline(0, color=INK, lw=0.8)
    for y, _, colour, one in lines:
        if isinstance(one, float):
            axes.plot(one, y, "v", ms=7, color=colour)
        elif one and one.model:
            axes.hlines(y, one.low, one.high, color=PALE, lw=1.6)
            axes.plot(one.value, y, "o", ms=4, color=colour)
        elif one:
            axes.fill([one.low, one.value, one.high, one.value], [y, y - 0.35, y, y + 0.35],
                      color=colour, lw=0)
    axes.set(yticks=[y for y, *_ in lines], yticklabels=[label for _, label, *_ in lines],
             ylim=(y + 0.7, -0.7), xlabel="RetMask minus this, points of 100")
    for tick, (_, _, colour, one) in zip(axes.get_yticklabels(), lines, strict=True):
        tick.set(color=colour, weight="normal" if getattr(one, "model", "") else "bold")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return figure


def published_runs(maps: pd.DataFrame, width: float = WIDTH) -> Figure:
    """Draw every published run as a square, filled where its scores occur for the first time."""
    models = [*maps["model"].unique()]
    tall = [-(-(maps["model"] == model).sum() // ROWS) for model in models]
    side = width / WIDTH  # of a square
    figure, panels = new_axes(0.11 * side * sum(tall) + 0.42 * len(models), rows=len(models),
                              width=width, height_ratios=[rows + 0.6 for rows in tall])
    for axes, model, rows in zip(panels, models, tall, strict=True):
        own = maps[maps["model"] == model].sort_values("run")
        at = np.arange(len(own))
        new = ~own["map"].duplicated().to_numpy()
        for chosen, colour in ((~new, PALE), (new, BLUE)):
            axes.scatter(at[chosen] % ROWS, -(at[chosen] // ROWS), s=17 * side**2, marker="s",
                         color=colour, lw=0)
        axes.set(xlim=(-0.8, ROWS - 0.2), ylim=(-rows + 0.3, 0.7), xticks=[], yticks=[])
        axes.set_title(f"{model}: {new.sum()} of {len(own)} runs differ", loc="left", fontsize=FONT)
        axes.spines[:].set_visible(False)
    return figure
