"""Figures of a model under variants of its attention, and what attention with less work saves."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from rmutils.book.figures import style


def heads(variants: Mapping[str, tuple[np.ndarray, np.ndarray]],
          retrieval: Sequence[tuple[int, int]]) -> Figure:
    """A panel per variant: scores of all heads under plain attention and under the variant."""
    columns = min(3, len(variants))
    rows = -(-len(variants) // columns)
    figure, panels = style.new_axes(0.8 + 2.2 * rows, rows, columns, sharex=True, sharey=True,
                                    flat=True)
    for axes, (name, (before, after)) in zip(panels, variants.items(), strict=False):
        marked = np.zeros(before.shape, dtype=bool)
        marked[tuple(zip(*retrieval, strict=True))] = True
        axes.plot([0, 1], [0, 1], color=style.GREY, lw=0.8, ls="--")
        for part, colour, marker, label in ((~marked, style.GREY, "o", "other heads"),
                                            (marked, style.BLUE, "D", "retrieval heads")):
            axes.plot(before[part], after[part], marker, color=colour, ms=3.5, label=label)
        axes.set_title(name, fontsize=9)
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
        axes.tick_params(labelsize=9, labelbottom=True)
    for axes in figure.axes[len(variants):]:
        axes.set_axis_off()
    figure.supxlabel("retrieval score under plain attention", fontsize=9)
    figure.supylabel("under the variant", fontsize=9)
    style.legend_above(figure, figure.axes[0], 2)
    return figure


LINES = ((style.BLUE, "o", "-"), (style.ORANGE, "s", "--"), (style.GREEN, "^", "-."),
         (style.PURPLE, "D", ":"), (style.RED, "v", "-"), (style.GREY, "x", "--"))
"""Colour, marker and line of each line, in their order."""
SHIFT = 0.012
"""Each line stands this share of the axis to the right of the one before it, so that no bar hides
another."""
WIDE = 10  # where the highest value is so many times the lowest, the axis is logarithmic
FAINT = 0.25  # exponent of the colours of weights: most are far below the highest


def panels(measures: Mapping[str, pd.DataFrame], xlabel: str, *,
           base: Mapping[str, tuple[float, float, float]] = {}, ticks: Mapping[float, str] = {},
           columns: int = 1, base_label: str = "plain", sharex: bool = True) -> Figure:
    """A panel per measure, a line per method."""
    rows = -(-len(measures) // columns)
    figure, grid = style.new_axes(0.9 + 1.7 * rows, rows, columns, sharex=sharex, squeeze=False)
    names = [*dict.fromkeys(name for part in measures.values() for name in part["line"])]
    for axes, (label, part) in zip(grid.flat, measures.items(), strict=False):
        if label in base:
            value, low, high = base[label]
            axes.axhspan(low, high, color=style.GREY, alpha=0.15, lw=0)
            axes.axhline(value, color=style.INK, lw=0.9, ls=":", label=base_label)
        _draw(axes, part, names)
        axes.set_ylabel(label, fontsize=9)
        axes.tick_params(labelsize=9)
        if ticks:
            axes.set_xticks([*ticks], ticks.values())
        elif (part["x"] % 1 == 0).all():
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in [*grid.flat][len(measures):]:
        axes.set_axis_off()
    figure.supxlabel(xlabel, fontsize=9)
    shown = {label: handle for axes in grid.flat for handle, label in zip(
        *axes.get_legend_handles_labels(), strict=True)}
    if len(shown) > 1:
        figure.legend(shown.values(), shown.keys(), loc="outside upper center", fontsize=9,
                      ncols=len(shown) if len(shown) < 6 else 3, columnspacing=1.2)
    return figure


def _draw(axes: Axes, part: pd.DataFrame, names: Sequence[str]) -> None:
    step = SHIFT * (part["x"].max() - part["x"].min())
    for i, (name, (colour, marker, line)) in enumerate(zip(names, LINES, strict=False)):
        own = part[part["line"] == name].sort_values("x")
        if len(own):
            style.with_intervals(axes, own["x"] + i * step, own, color=colour, marker=marker,
                           ls=line, ms=3.5, lw=1.2, capsize=2, elinewidth=0.9, label=name)
    least, most = part["value"].min(), part[["value", "high"]].max(axis=None)
    if 0 <= least <= most <= 1:
        axes.set_ylim(-0.04, 1.05)
    elif least > 0 and most > WIDE * least:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(min(axes.get_ylim()[0], 0), None)


def maps(weights: np.ndarray, heads: Sequence[int]) -> Figure:
    """Attention maps of some heads of a layer, on one scale of colours."""
    figure = _maps(weights, heads, 4, style.WIDTH)
    style.FOR_A_PHONE[figure] = _maps(weights, heads, 2, style.PHONE)
    return figure


def _maps(weights: np.ndarray, heads: Sequence[int], columns: int, width: float) -> Figure:
    rows, columns = -(-len(heads) // columns), min(columns, len(heads))
    figure, grid = style.new_axes(0.3 + 0.8 * width / columns * rows, rows, columns, width=width,
                                  sharex=True, sharey=True, squeeze=False)
    for axes, head in zip(grid.flat, heads, strict=False):
        drawn = axes.imshow(weights[head], cmap=style.SEQUENTIAL, norm=PowerNorm(FAINT, 0, 1),
                            interpolation="nearest")
        axes.set_title(f"head {head}", fontsize=9, pad=2)
    for i, axes in enumerate(grid.flat):
        axes.set(xticks=[], yticks=[])
        if i >= len(heads):
            axes.set_axis_off()
    figure.supxlabel("key (first to last)", fontsize=9)
    figure.supylabel("query (first on top)", fontsize=9)
    figure.colorbar(drawn, ax=grid, ticks=[0, 0.001, 0.01, 0.1, 1], shrink=0.8, label="weight")
    return figure


def tokens_over_layers_and_time(scores: np.ndarray, chosen: np.ndarray, layer: int) -> Figure:
    """Scores of tokens by layer, and the tokens that a layer chooses at each step."""
    figure, (left, right) = style.new_axes(2.9, columns=2)
    drawn = left.imshow(scores, cmap=style.SEQUENTIAL, norm=PowerNorm(FAINT, 0, 1), aspect="auto",
                        interpolation="nearest")
    left.set(xlabel="token", ylabel="layer", title="score of a token, by layer")
    left.yaxis.set_major_locator(MaxNLocator(integer=True))
    figure.colorbar(drawn, ax=left, ticks=[0, 0.001, 0.01, 0.1, 1])
    right.imshow(chosen, cmap=ListedColormap(["#ffffff00", style.ORANGE]), aspect="auto",
                 interpolation="nearest")
    right.set(xlabel="token (key)", ylabel="time (query)", title=f"chosen by layer {layer}")
    return figure
