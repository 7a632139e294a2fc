"""Figures about how scores are spread over the heads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rmutils.heads.scores import HeadScores
from rmutils.plots.style import GREY, RED, colour_of, new_axes

BIN_COLOURS = ("#D9D9D9", "#A6BDDB", "#3690C0", "#E69F00", "#D55E00")


def score_bins(shares: Mapping[str, list[float]], labels: list[str]) -> Figure:
    """Stacked shares of heads per score bin, a bar per source.

    Parameters
    ----------
    shares : mapping
        Row label -> share of heads in each bin (0 to 1; NaN: not printed).
    labels : list of str
        The bins.
    """
    figure, axes = new_axes(size=(5.8, 0.9 + 0.42 * len(shares)))
    rows = np.arange(len(shares))
    table = np.array(list(shares.values()), dtype=float)
    left = np.zeros(len(rows))
    for column, (label, colour) in enumerate(zip(labels, BIN_COLOURS, strict=True)):
        width = np.nan_to_num(table[:, column])
        axes.barh(rows, width, left=left, color=colour, label=label, height=0.72)
        for row in rows[width > 0.045]:
            axes.text(left[row] + width[row] / 2, row, f"{100 * width[row]:.1f}", ha="center",
                      va="center", fontsize=7.5, color="black")
        left += width
    axes.set_yticks(rows, list(shares), fontsize=8)
    axes.invert_yaxis()
    axes.set(xlabel="share of heads", xlim=(0, 1.0))
    axes.legend(ncols=len(labels), loc="lower center", bbox_to_anchor=(0.3, 1.0), fontsize=8,
                handlelength=0.8, columnspacing=0.8, handletextpad=0.4)
    return figure


def ranked_scores(models: Mapping[str, tuple[np.ndarray, np.ndarray]], tau: float) -> Figure:
    """Scores in falling order against the share of heads, on one axis for models of any size.

    Parameters
    ----------
    models : mapping
        Model -> means (heads,) and intervals (heads, 2).
    """
    figure, axes = new_axes(size=(5.8, 3.8))
    for model, (mean, interval) in models.items():
        order = np.argsort(-mean, kind="stable")
        share = (np.arange(len(mean)) + 1) / len(mean)
        colour = colour_of(model)
        axes.fill_between(share, *interval[order].T, color=colour, alpha=0.2, lw=0, step="mid")
        axes.plot(share, mean[order], color=colour, lw=1.6, label=model)
    axes.axhline(tau, color=GREY, lw=0.8, ls=":")
    axes.annotate(f"tau = {tau:g}", (1, tau), xytext=(0, 2), textcoords="offset points",
                  ha="right", fontsize=8)
    axes.set(xscale="log", xlabel="share of heads, highest first", ylabel="retrieval score",
             ylim=(0, None))
    axes.legend()
    return figure


def scores_by_layer(parts: Mapping[str, HeadScores], full: np.ndarray, tau: float) -> Figure:
    """Every head's score at its layer, a panel per part; layers that see everything are shaded.

    Parameters
    ----------
    parts : mapping
        Title of a panel -> scores, all of one model.
    full : ndarray of bool
        (layers,): True for a full layer, False for a sliding one.
    """
    figure, panels = new_axes(columns=len(parts), size=(5.8, 4.6), sharex=True, sharey=True,
                              squeeze=False)
    for axes, (title, scores) in zip(panels[0], parts.items(), strict=True):
        layers, heads = scores.shape
        rows = np.arange(layers)[:, None] + np.linspace(-0.3, 0.3, heads)
        interval = scores.interval()
        for kind, chosen, colour in (("full layer", full, RED), ("sliding layer", ~full, GREY)):
            axes.hlines(rows[chosen].ravel(), *interval[chosen].reshape(-1, 2).T, color=colour,
                        lw=0.8, alpha=0.6)
            axes.plot(scores.mean[chosen].ravel(), rows[chosen].ravel(), "o", ms=2.5,
                      color=colour, label=kind)
        for layer in np.flatnonzero(full):
            axes.axhspan(layer - 0.5, layer + 0.5, color=RED, alpha=0.08, lw=0)
        axes.axvline(tau, color=GREY, lw=0.8, ls=":")
        axes.set(xlabel=f"retrieval score\n{title}")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    panels[0, 0].set(ylabel="layer", xlim=(0, None), ylim=(-0.7, layers - 0.3))
    panels[0, -1].legend(fontsize=8, loc="lower right")
    return figure


def stability(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Agreement with the full ranking as needles or runs are added; bands over draws.

    Parameters
    ----------
    tables : mapping
        Label, which begins with the model's name -> a result of `ranking_stability`.
    """
    figure, panels = new_axes(columns=2, size=(5.8, 3.0), sharex=True)
    for label, frame in tables.items():
        colour = colour_of(label.split()[0])
        for axes, measure in zip(panels, ("overlap", "spearman"), strict=True):
            axes.fill_between(frame["count"], frame[f"{measure}_low"], frame[f"{measure}_high"],
                              color=colour, alpha=0.18, lw=0)
            axes.plot(frame["count"], frame[measure], color=colour, marker="o", ms=3,
                      label=label)
    for axes, name in zip(panels, ("overlap of the top heads", "rank correlation"), strict=True):
        axes.set(xscale="log", xlabel="needles or runs used", ylabel=name, ylim=(0, 1.03))
    panels[0].legend(fontsize=7.5, loc="lower right")
    return figure
