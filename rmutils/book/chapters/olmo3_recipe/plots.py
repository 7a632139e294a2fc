"""Figures of the Olmo 3 recipe: positions, packing, slices, and what an extension is worth."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from rmutils.book.figures import style
from rmutils.book.figures.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, RED, new_axes

COLOURS = {"YaRN, full layers": RED, "YaRN, all layers": ORANGE, "YaRN": RED,
           "interpolation": BLUE, "NTK-aware": GREEN, "larger base": PURPLE,
           "no extension": GREY, "as trained": GREY, "CWE alone": ORANGE, "no questions": PURPLE,
           "concatenated and cut": BLUE, "no masks": GREEN}
"""By method, or by what is left out of the recipe."""


def wavelengths(models: Mapping[str, tuple[pd.DataFrame, int, int]]) -> Figure:
    """Effective wavelength of each pair of dimensions by method, and how much longer it became."""
    figure, grid = new_axes(4.6, 2, len(models), sharex="col", sharey="row", squeeze=False,
                            height_ratios=(3, 2))
    for (above, below), (title, (table, trained, wanted)) in zip(grid.T, models.items(),
                                                                 strict=True):
        for method, waves in table.items():
            how = {"color": COLOURS[method], "lw": 1.4,
                   "ls": "--" if method == "as trained" else "-"}
            above.plot(table.index, waves, label=method, **how)
            below.plot(table.index, waves / table["as trained"], **how)
        for window in (trained, wanted):
            above.axhline(window, color=INK, lw=0.8, ls=":")
            above.annotate(f"{window:,} tokens", (0, window), xytext=(0, 2),
                           textcoords="offset points", fontsize=9)
        above.set(yscale="log", title=title)
        below.set(yscale="log", xlabel="pair of dimensions")
    factors = [1, 2, 4, 8, 16]
    grid[1, 0].set_yticks(factors, [f"{factor}x" for factor in factors])
    grid[1, 0].yaxis.set_minor_locator(NullLocator())
    grid[0, 0].set_ylabel("wavelength (tokens)")
    grid[1, 0].set_ylabel("longer by")
    style.legend_above(figure, grid[0, 0], 3)
    return figure


def slices(sent: Mapping[str, pd.DataFrame], waiting: Mapping[str, pd.DataFrame],
           used: int) -> Figure:
    """Context parallelism by its number of ranks: what each receives, and who waits for whom."""
    figure, (left, right) = new_axes(3.2, columns=2)
    for axes, tables, column, colours in ((left, sent, "gigabytes", (RED, PURPLE)),
                                          (right, waiting, "ratio", (BLUE, GREEN, ORANGE))):
        for (label, table), colour in zip(tables.items(), colours, strict=False):
            axes.plot(table["ranks"], table[column], marker="o", ms=3, color=colour, label=label)
        axes.axvline(used, color=INK, lw=0.8, ls=":")
        axes.set_xscale("log", base=2)
        ticks = sorted({n for table in tables.values() for n in table["ranks"]})[::2]
        axes.set_xticks(ticks, [f"{n:,}" for n in ticks], fontsize=9)
        axes.set_xlabel("slices")
        axes.legend(fontsize=9)
    left.set(ylabel="received by a device (GB)", ylim=(0, None))
    right.set(ylabel="most work of a slice, times mean", ylim=(0, None))
    return figure


MARKERS = {"YaRN, all layers": "s", "interpolation": "^", "NTK-aware": "v", "larger base": "D",
           "no extension": "x", "no questions": "s", "concatenated and cut": "^", "no masks": "D"}
SPREAD = 1.025
"""Each line stands this much to the right of the one before, so that no bar hides another."""


def found_by_length(before: pd.DataFrame, after: pd.DataFrame, trained: int) -> Figure:
    """Facts found by length and method, in two panels: before a fine-tune and after it."""
    figure, panels = new_axes(3.6, columns=2, sharey=True)
    for axes, table, title in zip(panels, (before, after), ("before the fine-tune", "after it"),
                                  strict=True):
        for i, (method, part) in enumerate(table.groupby("method", sort=False)):
            _line(axes, part, "length", method, SPREAD**i)
        axes.axvline(trained, color=INK, lw=0.8, ls=":")
        lengths = sorted(table["length"].unique())
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, [f"{n:,}" for n in lengths], fontsize=9)
        axes.set(title=title, xlabel="length (tokens)", ylim=(-0.02, 1.04))
        axes.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
        axes.annotate("trained window", (trained, 0), xytext=(-4, 4), textcoords="offset points",
                      rotation=90, ha="right", va="bottom", fontsize=9)
    panels[0].set_ylabel("facts found")
    style.legend_above(figure, panels[0], 3)
    return figure


def loss_by_position(table: pd.DataFrame, trained: int, reference: str) -> Figure:
    """Loss along the longest texts, less that of a method, with bands."""
    figure, axes = new_axes(3.2)
    for method, part in table.groupby("method", sort=False):
        axes.fill_between(part["position"], part["low"], part["high"], color=COLOURS[method],
                          alpha=0.15, lw=0)
        axes.plot(part["position"], part["value"], marker=MARKERS.get(method, "o"), ms=4, lw=1.4,
                  color=COLOURS[method], label=method)
    axes.axhline(0, color=GREY, lw=1.0, label=reference)
    axes.axvline(trained, color=INK, lw=0.8, ls=":")
    axes.set(xlabel="position in the text (tokens)",
             ylabel=f"loss minus that of {reference}\n(nats per token)")
    axes.legend(fontsize=9, ncols=2)
    return figure


def budget(table: pd.DataFrame) -> Figure:
    """Facts found by tokens of the fine-tune: a panel for each length, a line for each method."""
    lengths = sorted(table["length"].unique())
    figure, panels = new_axes(3.0, columns=len(lengths), sharey=True, squeeze=False)
    for axes, length in zip(panels[0], lengths, strict=True):
        for i, (method, part) in enumerate(
                table[table["length"] == length].groupby("method", sort=False)):
            part = part.assign(tokens=part["tokens"] / 1000 + 2 * i)
            _line(axes, part, "tokens", method, 1.0)
        axes.set_title(f"{length:,} tokens", fontsize=9)
        axes.tick_params(axis="x", labelsize=9)
        axes.locator_params(axis="x", nbins=3)
        axes.set_ylim(-0.02, 1.04)
    panels[0, 0].set_ylabel("facts found")
    figure.supxlabel("tokens of the fine-tune (thousands)", fontsize=10)
    style.legend_above(figure, panels[0, 0], 3)
    return figure


def without_parts(effects: pd.DataFrame) -> Figure:
    """Loss and facts found without each part of the recipe, minus the whole recipe, by tokens."""
    figure, panels = new_axes(3.4, columns=2)
    for axes, measure, name in zip(panels, ("loss", "found"), (
            "loss (nats per token)", "facts found (share)"), strict=True):
        arms = effects[effects["measure"] == measure].groupby("arm", sort=False)
        for i, (arm, part) in enumerate(arms):
            _line(axes, part.assign(tokens=part["tokens"] / 1000 + 3 * i), "tokens", arm, 1.0)
        axes.axhline(0, color=INK, lw=0.8)
        axes.set_title(name)
    panels[0].set_ylabel("minus the whole recipe")
    figure.supxlabel("tokens of the fine-tune (thousands)", fontsize=10)
    style.legend_above(figure, panels[0], 4)
    return figure


def _line(axes: Axes, part: pd.DataFrame, x: str, method: str, shift: float) -> None:
    """A method's values with 95 % intervals."""
    style.with_intervals(axes, part[x] * shift, part, color=COLOURS[method], ms=4, lw=1.2,
                         capsize=2, marker=MARKERS.get(method, "o"), label=method)


def ruler(table: pd.DataFrame) -> Figure:
    """RULER's scores by kind of task: a panel for each model, with YaRN and without it."""
    models, kinds = table["model"].unique(), [*table["kind"].unique()]
    figure, panels = new_axes(3.2, columns=len(models), sharey=True, squeeze=False)
    for axes, model in zip(panels[0], models, strict=True):
        for i, (arm, part) in enumerate(table[table["model"] == model].groupby("arm", sort=False)):
            places = part["kind"].map(kinds.index) + 0.2 * i - 0.1
            style.with_intervals(axes, places, part, color=COLOURS[arm], ls="", marker="os"[i],
                                 ms=5, capsize=2, label=arm)
        axes.set(title=model, xlim=(-0.5, len(kinds) - 0.5), ylim=(-3, 103))
        axes.set_xticks(range(len(kinds)), kinds, fontsize=9)
    panels[0, 0].set_ylabel("RULER score (0 to 100)")
    style.legend_above(figure, panels[0, 0], 2)
    return figure
