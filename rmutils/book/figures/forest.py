"""The one figure for a set of comparisons: a row for each, its interval coloured by its sign."""

import textwrap
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rmutils.book.figures.report import number
from rmutils.book.figures.style import (
    BLUE,
    CALLED,
    FOR_A_PHONE,
    GREY,
    INK,
    PHONE,
    RED,
    WIDTH,
    new_axes,
)
from rmutils.book.verdicts import ALPHA

SIGNS = {"above": (">", BLUE, "interval above {}"), "below": ("<", RED, "interval below {}"),
         "open": ("o", GREY, "interval includes {}"), "none": ("D", INK, "no interval")}
"""Marker, colour and words; each of the three says the same."""
DECIDED = SIGNS | {"above": (">", BLUE, "shown: above {}"), "below": ("<", RED, "shown: below {}"),
                   "open": ("o", GREY, "undecided")}
"""The same where corrected p decide."""
PANELS = 4  # panels side by side; with more, names of rows are left without room


def forest(table: pd.DataFrame, xlabel: str, *, label: str = "label", value: str = "value",
           group: str | None = None, panel: str | None = None, reference: float = 0,
           sharex: bool = False, p: str | None = None) -> Figure:
    """Draw comparisons as dots with 95 % intervals, grouped, coloured by their side of zero; where
    a column has corrected p, one of 0.05 or more leaves a row uncoloured."""
    signs = DECIDED if p else SIGNS
    table = pd.DataFrame({
        "label": table[label], "value": table[value], "low": table["low"], "high": table["high"],
        "p": table[p] if p else 0.0,
        "group": table[group] if group else "", "panel": table[panel] if panel else ""}
        ).replace(dict.fromkeys(("label", "group", "panel"), CALLED))
    if (count := table["panel"].nunique()) > PANELS:
        raise ValueError(f"{count} panels; a figure has room for {PANELS}")
    figure = _wide(table, xlabel, reference, signs, sharex)
    FOR_A_PHONE[figure] = _narrow(table, xlabel, reference, signs, sharex)
    return figure


def _wide(table: pd.DataFrame, xlabel: str, reference: float,
          signs: Mapping[str, tuple[str, str, str]], sharex: bool) -> Figure:
    """Draw panels side by side, names of rows on the left and, beside one panel, numbers."""
    panels = list(table["panel"].unique())
    places, ticks = _rows(table)
    last = max(places.values(), default=0)
    titles = [textwrap.fill(str(panel), 64 // len(panels)) for panel in panels]
    lines = max((title.count("\n") + bool(title) for title in titles), default=0)
    figure, grid = new_axes(1.0 + 0.23 * (last + 1) + 0.17 * lines, columns=len(panels),
                            sharey=True, sharex=sharex, flat=True)
    found = set()
    for axes, panel, title in zip(grid, panels, titles, strict=True):
        found |= _panel(axes, table[table["panel"] == panel], places, reference)
        axes.axvline(reference, color=GREY, lw=0.8)
        axes.set_title(title)
        axes.locator_params(axis="x", nbins=8 // len(panels) + 1, steps=[1, 2, 5, 10],
                            prune="both" if len(panels) > 2 else None)  # neighbours' would touch
    first = grid[0]
    first.set_ylim(last + 0.6, -0.6)
    first.set_yticks(list(ticks), list(ticks.values()))
    for text, place in zip(first.get_yticklabels(), ticks, strict=True):
        text.set_fontweight("normal" if place in places.values() else "bold")
    if len(panels) == 1:
        _numbers(first, table, places)
    figure.supxlabel(xlabel, fontsize=10)
    figure.legend(handles=_legend(signs, found, reference), ncols=len(signs),
                  loc="outside upper center")
    return figure


def _narrow(table: pd.DataFrame, xlabel: str, reference: float,
            signs: Mapping[str, tuple[str, str, str]], sharex: bool) -> Figure:
    """Draw the same for a phone: panels below each other, the name of a row above it."""
    parts = [table[table["panel"] == panel] for panel in table["panel"].unique()]
    rows = [_rows(part) for part in parts]
    tall = [0.35 * len(ticks) + 0.3 for _, ticks in rows]
    figure, grid = new_axes(sum(tall) + 0.5 + 0.3 * len(parts), rows=len(parts), width=PHONE,
                            height_ratios=tall, sharex=sharex, flat=True)
    found = set()
    for axes, part, (places, ticks) in zip(grid, parts, rows, strict=True):
        found |= _panel(axes, part, places, reference)
        here = np.array([*places.values()])  # the line of zero leaves the names room
        axes.vlines([reference] * len(here), here - 0.12, here + 0.36, color=GREY, lw=0.8)
        title = str(part["panel"].iloc[0])
        axes.set_title(textwrap.fill(title, 44), loc="left", fontweight="bold")
        axes.locator_params(axis="x", nbins=6, steps=[1, 2, 5, 10])
        axes.set_ylim(max(ticks, default=0) + 0.5, -0.75)
        axes.set_yticks([])
        for place, name in ticks.items():
            axes.annotate(name, (0, place), (0, 4), xycoords=("axes fraction", "data"),
                          textcoords="offset points", va="bottom", fontsize=9,
                          fontweight="normal" if place in places.values() else "bold")
    figure.supxlabel(textwrap.fill(xlabel, 44), fontsize=10)
    figure.legend(handles=_legend(signs, found, reference), ncols=2, loc="outside upper left",
                  fontsize=9)
    return figure


def _panel(axes: Axes, part: pd.DataFrame, places: Mapping[tuple[str, str], int],
           reference: float) -> set[str]:
    """Draw the rows of a panel, and return the signs that occur."""
    found = _draw(axes, part, places, reference)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return found


def _legend(signs: Mapping[str, tuple[str, str, str]], found: set[str],
            reference: float) -> list[Line2D]:
    return [Line2D([], [], marker=marker, color=colour, ls="-" if sign != "none" else "", lw=1.6,
                   ms=6, label=words.format("zero" if reference == 0 else f"{reference:g}"))
            for sign, (marker, colour, words) in signs.items() if sign in found]


def by_group(table: pd.DataFrame, xlabel: str, colours: Mapping[str, str]) -> Figure:
    """Draw levels with 95 % intervals in groups, each label in its colour."""
    table = table.sort_values("group", key=lambda names: pd.factorize(names)[0], kind="stable")
    figure, small = (_levels(table, xlabel, colours, width) for width in (WIDTH, PHONE))
    FOR_A_PHONE[figure] = small
    return figure


def _levels(table: pd.DataFrame, xlabel: str, colours: Mapping[str, str], width: float) -> Figure:
    places, ticks = _rows(table)
    last = max(places.values())
    figure, axes = new_axes(1.0 + 0.23 * (last + 1), width=width)
    for row in table.itertuples():
        place, colour = places[row.group, row.label], colours[row.label]
        axes.hlines(place, row.low, row.high, color=colour, lw=1.8)
        axes.plot(row.value, place, "o", ms=6, color=colour, label=row.group)
    axes.set_yticks(list(ticks), list(ticks.values()))
    for text, place in zip(axes.get_yticklabels(), ticks, strict=True):
        text.set_fontweight("normal" if place in places.values() else "bold")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set(xlabel=xlabel, xlim=(-2, 102), ylim=(last + 0.6, -0.6))
    return figure


def _rows(table: pd.DataFrame) -> tuple[dict[tuple[str, str], int], dict[int, str]]:
    """Place of each group's label, and what is written at each place: labels and headings."""
    places, ticks, place = {}, {}, 0
    for group, part in table.groupby("group", sort=False):
        if group:
            ticks[place], place = str(group), place + 1
        for label in part["label"].unique():
            places[group, label] = place
            ticks[place], place = str(label), place + 1
    return places, ticks


def _draw(axes: Axes, part: pd.DataFrame, places: Mapping[tuple[str, str], int],
          reference: float) -> set[str]:
    found = set()
    for row in part.itertuples():
        sign = ("none" if pd.isna(row.low) else "open" if row.p >= ALPHA else
                "above" if row.low > reference else "below" if row.high < reference else "open")
        marker, colour, _ = SIGNS[sign]
        place = places[row.group, row.label]
        if sign != "none":
            axes.hlines(place, row.low, row.high, color=colour, lw=1.8, label=row.group or None)
        axes.plot(row.value, place, marker, ms=6, color=colour, label=row.group or None)
        found.add(sign)
    return found


def _numbers(axes: Axes, table: pd.DataFrame, places: dict[tuple[str, str], int]) -> None:
    beside = axes.secondary_yaxis("right")
    beside.set_yticks([places[row.group, row.label] for row in table.itertuples()],
                      [number(row.value, row.low, row.high) for row in table.itertuples()])
    beside.tick_params(length=0)
    beside.spines["right"].set_visible(False)
