"""Figures of the score x ablation matrix, and of one answer token by token."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rmutils.book.chapters.which_heads.experiment import COPY, SCORE, TASK, WRITE
from rmutils.book.figures.head_figures import heads_by_token
from rmutils.book.figures.style import BLUE, CALLED, GREY, ORANGE, new_axes

TITLES = {"literal": "literal needles", "paraphrased": "paraphrased needles",
          TASK: "questions on documents"}


def masking_costs(maskings: Mapping[str, pd.DataFrame]) -> Figure:
    """Losses by masking, a row of panels for each model and number of heads."""
    outcomes = next(iter(maskings.values()))["outcome"].unique()
    kinds = max(table["kind"].nunique() for table in maskings.values())
    figure, panels = new_axes(0.9 + (0.37 + 0.22 * kinds) * len(maskings), len(maskings),
                              len(outcomes), sharex="col", sharey=True, squeeze=False)
    for row, (label, table) in zip(panels, maskings.items(), strict=True):
        for axes, outcome in zip(row, outcomes, strict=True):
            part = table[table["outcome"] == outcome]
            for name, colour, marker, shift in (("lost", BLUE, "D", -0.13),
                                                ("control", ORANGE, "^", 0.13)):
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
    """One answer token by token: heads that copy, and what heads that write add to the logit."""
    words = answer.drop_duplicates("step")["token"]
    figure, panels = new_axes(3.9, rows=2, sharex=True)
    for axes, kind, column, cmap, label in (
            (panels[0], COPY, "attention", "Oranges", "attention on the needle"),
            (panels[1], WRITE, "adds", "PuOr_r", "added to the logit")):
        part = answer[answer["kind"] == kind]
        grid = part.pivot(index=["layer", "head"], columns="step", values=column)
        order = part.drop_duplicates(["layer", "head"])[["layer", "head"]]
        grid = grid.loc[list(order.itertuples(index=False, name=None))]
        most = 1.0 if kind == COPY else float(np.abs(grid.to_numpy()).max())
        heads_by_token(axes, grid, words, part[part["copies"]], cmap=cmap, label=label,
                       low=0 if kind == COPY else -most, high=most)
        axes.set_title(f"{CALLED.get(model, model)}: the heads that "
                       f"{'copy' if kind == COPY else 'write'}", loc="left", fontsize=10)
    return figure
