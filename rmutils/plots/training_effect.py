"""Figures of what a training did to the scores of heads."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rmutils.plots.style import GREEN, GREY, RED, colour_of, new_axes


def before_after(heads: pd.DataFrame, top: int) -> Figure:
    """The layout of Figure 5: scores before and after in the order of the scores before.

    Below them the change of each head, on a scale of its own. The dashed line is the threshold: to
    its left are the retrieval heads, if these are the highest ones.

    Parameters
    ----------
    heads : DataFrame
        From `rmutils.heads.effect.head_changes`.
    top : int
        How many heads are drawn, from the highest.
    """
    figure = Figure(figsize=(5.8, 5.0))
    scores, changes = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    shown = heads.head(top)
    size = 4 if len(shown) < 80 else 2.5
    scores.fill_between(shown["rank"], shown["before_low"], shown["before_high"], color=GREY,
                        alpha=0.25, lw=0)
    scores.plot(shown["rank"], shown["before"], color=GREY, lw=1.4, label="before")
    for retrieval, colour in ((True, RED), (False, GREEN)):
        part = shown[shown["retrieval"] == retrieval]
        what = "retrieval heads" if retrieval else "others"
        for axes, name in ((scores, "after"), (changes, "change")):
            axes.vlines(part["rank"], part[f"{name}_low"], part[f"{name}_high"], color=colour,
                        lw=0.9)
            axes.plot(part["rank"], part[name], "o", ms=size, color=colour,
                      label=f"after, {what}")
    changes.axhline(0, color=GREY, lw=0.8)
    count = int(heads["retrieval"].sum())
    if heads["retrieval"].head(count).all():
        for axes in (scores, changes):
            axes.axvline(count + 0.5, color=RED, lw=1, ls="--")
    scores.set(ylabel="retrieval score", ylim=(0, None))
    changes.set(xlabel="heads in order of their score before", ylabel="change",
                xlim=(0, len(shown) + 1))
    scores.legend()
    return figure


def changes_by_strategy(
    changes: pd.DataFrame, xlabel: str = "change of the mean score"
) -> Figure:
    """Changes with 95 % intervals: a panel per group of heads, a row per strategy, a dot per model.

    Parameters
    ----------
    changes : DataFrame
        `group`, `strategy`, `model`, `value`, `low`, `high`. Each panel has a scale of its own.
    """
    groups, strategies, models = (list(changes[name].unique())
                                  for name in ("group", "strategy", "model"))
    height = 1.1 + 0.3 * len(strategies) + 0.1 * len(strategies) * len(models)
    figure, panels = new_axes(columns=len(groups), size=(5.8, height), sharey=True, squeeze=False)
    for axes, group in zip(panels[0], groups, strict=True):
        for place, model in enumerate(models):
            rows = changes[(changes["group"] == group) & (changes["model"] == model)]
            y = rows["strategy"].map(strategies.index) + 0.7 * (
                (place + 0.5) / len(models) - 0.5)
            axes.hlines(y, rows["low"], rows["high"], color=colour_of(model), lw=1.4)
            axes.plot(rows["value"], y, "o", ms=4, color=colour_of(model), label=model)
        axes.axvline(0, color=GREY, lw=0.8)
        axes.locator_params(axis="x", nbins=4)
        axes.set(title=group, xlabel=xlabel)
    panels[0, 0].set_yticks(np.arange(len(strategies)), strategies, fontsize=8)
    panels[0, 0].set(ylim=(len(strategies) - 0.5, -0.5))
    figure.legend(*panels[0, 0].get_legend_handles_labels(), ncols=2, loc="outside upper center",
                  fontsize=8)
    return figure
