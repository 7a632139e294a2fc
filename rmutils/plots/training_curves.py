"""Figures about preference pairs and trainings on them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rmutils.plots.style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED

COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, GREY)
CURVES = {"loss": "loss (nats)", "margin": "reward margin", "accuracy": "accuracy"}


def training_curves(trainings: Mapping[str, Sequence[pd.DataFrame]]) -> Figure:
    """Loss, margin and accuracy by step, each step on its own batch; dotted: ln 2.

    Parameters
    ----------
    trainings : mapping
        Label -> its trainings, which get one colour: as in `curve.csv`, for DPO.
    """
    figure = Figure(figsize=(5.8, 5.6))
    panels = figure.subplots(3, 1, sharex=True)
    for colour, (label, curves) in zip(COLOURS, trainings.items(), strict=False):
        for number, curve in enumerate(curves):
            for axes, column in zip(panels, CURVES, strict=True):
                axes.plot(curve["step"], curve[column], color=colour, lw=1.4, marker="o", ms=2.5,
                          label=None if number else label)
    panels[0].axhline(math.log(2), color=GREY, lw=0.8, ls=":")
    panels[1].axhline(0, color=GREY, lw=0.8, ls=":")
    for axes, name in zip(panels, CURVES.values(), strict=True):
        axes.set(ylabel=name)
    panels[2].set(xlabel="training step", ylim=(-0.03, 1.03))
    panels[0].legend(fontsize=8)
    return figure


def dots(table: pd.DataFrame) -> Figure:
    """Dots with 95 % intervals, a panel per measure, each with its own axis; dotted: 0.

    Parameters
    ----------
    table : DataFrame
        `measure`, `label`, `value`, `low`, `high`; the same labels in each measure.
    """
    groups = list(table.groupby("measure", sort=False))
    labels = list(table["label"].unique())
    rows = math.ceil(len(groups) / 2)
    figure = Figure(figsize=(5.8, rows * (0.9 + 0.24 * len(labels))))
    panels = figure.subplots(rows, 2, sharey=True, squeeze=False).ravel()
    for axes, (measure, group) in zip(panels, groups, strict=False):
        places = np.array([labels.index(label) for label in group["label"]])
        axes.hlines(places, group["low"], group["high"], color=BLUE, lw=1.6)
        axes.plot(group["value"], places, "o", ms=4.5, color=BLUE)
        axes.axvline(0, color=GREY, lw=0.8, ls=":")
        axes.set(xlabel=textwrap.fill(measure, 26), yticks=range(len(labels)),
                 yticklabels=labels, ylim=(len(labels) - 0.5, -0.5))
    for axes in panels[len(groups):]:
        axes.remove()
    return figure
