"""Figures of the score x ablation matrix, and of one answer token by token."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rmutils.book.chapters.which_heads.experiment import COPY, SCORE, TASK, WRITE
from rmutils.book.figures.style import BLUE, GREY, RED, WIDTH

TITLES = {"literal": "literal needles", "paraphrased": "paraphrased needles",
          TASK: "questions on documents"}


def masking_costs(maskings: Mapping[str, pd.DataFrame]) -> Figure:
    """Losses by masking, a row of panels for each model and number of heads, with 95 % intervals.
    """
    outcomes = next(iter(maskings.values()))["outcome"].unique()
    kinds = max(table["kind"].nunique() for table in maskings.values())
    figure = Figure(figsize=(WIDTH, 0.9 + (0.37 + 0.22 * kinds) * len(maskings)),
                    layout="constrained")
    panels = figure.subplots(len(maskings), len(outcomes), sharex="col", sharey=True, squeeze=False)
    for row, (label, table) in zip(panels, maskings.items(), strict=True):
        for axes, outcome in zip(row, outcomes, strict=True):
            part = table[table["outcome"] == outcome]
            for name, colour, marker, shift in (("lost", RED, "D", -0.13),
                                                ("control", BLUE, "^", 0.13)):
                rows = np.arange(len(part)) + shift
                value, low, high = np.array([[*found] for found in part[name]], float).T
                axes.hlines(rows, low, high, color=colour, lw=1.4)
                axes.plot(value, rows, marker, color=colour, ms=4.5)
            axes.axvline(0, color=GREY, lw=0.8)
            axes.set_yticks(range(len(part)), part["kind"].map(SCORE))
            axes.tick_params(labelsize=9)
            if axes in panels[0]:
                axes.set_title(TITLES.get(outcome, outcome), fontsize=9.5)
        row[0].set_ylabel(label, fontsize=9)
    panels[0, 0].invert_yaxis()
    figure.supxlabel("lost, share of all", fontsize=9.5)
    return figure


def copy_against_write(answer: pd.DataFrame, model: str) -> Figure:
    """One answer token by token: heads that copy, and what heads that write add to the logit.

    `answer`: The table `answer` of `rmutils.book.chapters.which_heads.experiment.WhichHeads`.
    """
    words = answer.drop_duplicates("step")["token"].str.strip().str.replace("$", r"\$")
    figure = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    panels = figure.subplots(2, 1, sharex=True)
    for axes, kind, column, cmap, label in (
            (panels[0], COPY, "attention", "Oranges", "attention on the needle"),
            (panels[1], WRITE, "adds", "PuOr_r", "added to the logit")):
        part = answer[answer["kind"] == kind]
        grid = part.pivot(index=["layer", "head"], columns="step", values=column)
        order = part.drop_duplicates(["layer", "head"])[["layer", "head"]]
        grid = grid.loc[list(order.itertuples(index=False, name=None))]
        most = 1.0 if kind == COPY else float(np.abs(grid.to_numpy()).max())
        mesh = axes.pcolormesh(grid.to_numpy(), cmap=cmap, vmin=0 if kind == COPY else -most,
                               vmax=most, edgecolor="face", linewidth=0.3)
        axes.set_yticks(np.arange(len(grid)) + 0.5,
                        [f"{layer}-{head}" for layer, head in grid.index], fontsize=9)
        for row, head in enumerate(grid.index):
            steps = part[(part["layer"] == head[0]) & (part["head"] == head[1]) & part["copies"]]
            axes.plot(grid.columns.get_indexer(steps["step"]) + 0.5,
                      np.full(len(steps), row + 0.5), "o", color="black", ms=3.5)
        axes.invert_yaxis()
        axes.set_title(f"{model}: the heads that {'copy' if kind == COPY else 'write'}",
                       loc="left", fontsize=10)
        figure.colorbar(mesh, ax=axes, label=label, pad=0.01)
    panels[1].set_xticks(np.arange(len(words)) + 0.5, words, rotation=60, ha="right", fontsize=9)
    return figure
