"""Figures about needles and heads, and about how scores are spread over the heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import seaborn
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rmutils.book.figures import style
from rmutils.corpora.niah import NiahCase
from rmutils.heads.scores import DECIMALS, Head, HeadScores

if TYPE_CHECKING:
    from rmutils.attention.decoding import Answer


def arg_max_rows(case: NiahCase, answer: Answer, written: Sequence[str],
                 heads: Mapping[str, Head]) -> Figure:
    """Where heads look, token by token: a panel per head, a dot per written token."""
    figure, panels = style.new_axes(0.6 + 0.19 * len(written), columns=len(heads), sharey=True,
                              squeeze=False)
    steps = np.arange(len(written))
    for panel, (title, (layer, head)) in zip(panels[0], heads.items(), strict=True):
        seen = answer.positions[:, layer, head]
        start, end = case.needle_span
        panel.axvspan(start - 0.5, end - 0.5, color=style.ORANGE, alpha=0.35, lw=0)
        inside = (seen >= start) & (seen < end)
        panel.scatter(seen[~inside], steps[~inside], s=14, color=style.GREY)
        panel.scatter(seen[inside], steps[inside], s=18, color=style.BLUE)
        panel.axvline(len(case.input_ids), color=style.GREY, lw=0.8, ls=":")
        panel.set(title=title, xlabel="position looked at (tokens)",
                  xlim=(-4, len(case.input_ids) + len(written)))
    panels[0, 0].set(yticks=steps, yticklabels=[w.replace("$", r"\$") for w in written],
                     ylabel="token written")
    panels[0, 0].invert_yaxis()
    panels[0, 0].tick_params(axis="y", labelsize=9)
    return figure


def success_map(cases: pd.DataFrame) -> Figure:
    """Share of needles found, by prompt length and depth."""
    grid = cases.pivot_table(index="depth", columns="length", values="success", aggfunc="mean")
    figure, axes = style.new_axes(3.8)
    image = _cells(axes, 100 * grid.to_numpy(), 100)
    for (i, j), share in np.ndenumerate(grid.to_numpy()):
        axes.text(j, i, f"{100 * share:.0f}", ha="center", va="center", fontsize=9,
                  color="black" if share > 0.55 else "white")
    axes.set_xticks(range(len(grid.columns)), grid.columns)
    axes.set_yticks(range(len(grid.index)), [f"{100 * d:.0f} %" for d in grid.index])
    axes.set(xlabel="prompt length (tokens)", ylabel="depth of the needle")
    _scale(figure, image, label="needles found, %")
    return figure


def head_map(scores: HeadScores, tau: float) -> Figure:
    """Mean score of every head, layers x heads; those at or above `tau` are outlined."""
    figure, axes = style.new_axes(0.9 + 0.24 * scores.shape[1])
    return scores.plot(tau=tau, axes=axes)


def head_maps(detections: Mapping[str, HeadScores], tau: float) -> Figure:
    """Maps of several models on one scale; titles say how many heads reach `tau`."""
    rows = -(-len(detections) // 2)
    figure, grid = style.new_axes(0.6 + 2.1 * rows, rows, 2, flat=True)
    for axes, (model, scores) in zip(grid, detections.items(), strict=False):
        mesh = _cells(axes, scores.mean.T, 1)
        reached = (scores.mean.round(DECIMALS) >= tau).sum()
        axes.set_title(f"{style.CALLED.get(model, model)}: {reached} of {scores.mean.size}")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    for axes in grid[len(detections):]:
        axes.remove()
    figure.supylabel("head", fontsize=10)
    figure.supxlabel("layer", fontsize=10)
    _scale(figure, mesh, ax=[*grid[:len(detections)]], label="copy score")
    return figure


def heads_by_token(axes: Axes, grid: pd.DataFrame, words: pd.Series, marked: pd.DataFrame, *,
                   cmap: str, low: float, high: float, label: str) -> None:
    """Map of values, a row per head and a column per token, with dots on some cells."""
    seaborn.heatmap(grid, ax=axes, cmap=cmap, vmin=low, vmax=high, linewidth=0.5,
                    yticklabels=[f"{layer}-{head}" for layer, head in grid.index],
                    xticklabels=words.str.strip().str.replace("$", r"\$").tolist(),
                    cbar_kws={"pad": 0.01})
    axes.collections[0].colorbar.set_label(label, fontsize=9)
    heads = pd.MultiIndex.from_frame(marked[["layer", "head"]])
    axes.plot(grid.columns.get_indexer(marked["step"]) + 0.5, grid.index.get_indexer(heads) + 0.5,
              "o", color="black", ms=3.5)
    axes.set(xlabel="", ylabel="")
    axes.tick_params(labelsize=9)
    axes.tick_params("x", rotation=60)
    axes.tick_params("y", rotation=0)


def _cells(axes: Axes, values: np.ndarray, highest: float) -> QuadMesh:
    """A matrix as a map, its first row on top: of shapes, where `imshow` would put in pixels."""
    rows, columns = map(np.arange, values.shape)
    axes.invert_yaxis()
    return axes.pcolormesh(columns, rows, values, cmap=style.SEQUENTIAL, vmin=0, vmax=highest,
                           edgecolor="face", linewidth=0.3)  # without edges, gaps shine through


def _scale(figure: Figure, mesh: QuadMesh, **kwargs) -> None:
    """The scale of its colours, of shapes too."""
    figure.colorbar(mesh, **kwargs).solids.set(rasterized=False, edgecolor="face")


def agreement(small: HeadScores, large: HeadScores, top_k: int) -> Figure:
    """Mean scores of a small against a large grid, a dot per head; the top heads are marked."""
    figure, axes = style.new_axes(4.2)
    axes.scatter(large.mean, small.mean, s=10, color=style.GREY)
    colour = style.colour_of(large.model)
    top = tuple(zip(*large.select(top_k=top_k), strict=True))
    axes.scatter(large.mean[top], small.mean[top], s=26, color=colour,
                 label=f"top {top_k} of the large grid")
    axes.vlines(large.mean[top], *small.interval()[top].T, color=colour, lw=0.8)
    axes.hlines(small.mean[top], *large.interval()[top].T, color=colour, lw=0.8)
    limit = max(large.mean.max(), small.mean.max()) * 1.05
    axes.plot([0, limit], [0, limit], color=style.GREY, lw=0.8, ls=":")
    axes.set(xlabel="score on the large grid", ylabel="score on the small grid")
    axes.legend(loc="upper left")
    return figure


LINES = ("-", "--", "-.", ":")  # line styles that tell apart models of one colour
BIN_COLOURS = ("#D9D9D9", "#A6BDDB", "#3690C0", "#E69F00", "#D55E00")


def score_bins(shares: Mapping[str, list[float]], labels: list[str]) -> Figure:
    """Stacked shares of heads per score bin, a bar per source."""
    figure, axes = style.new_axes(0.9 + 0.42 * len(shares))
    rows = np.arange(len(shares))
    table = 100 * np.array(list(shares.values()), dtype=float)
    left = np.zeros(len(rows))
    for column, (label, colour) in enumerate(zip(labels, BIN_COLOURS, strict=True)):
        width = np.nan_to_num(table[:, column])
        axes.barh(rows, width, left=left, color=colour, label=label, height=0.72)
        for row in rows[width > 4.5]:
            axes.text(left[row] + width[row] / 2, row, f"{width[row]:.1f}", ha="center",
                      va="center", fontsize=9, color="black")
        left += width
    axes.set_yticks(rows, list(shares), fontsize=9)
    axes.invert_yaxis()
    axes.set(xlabel="heads, %", xlim=(0, 100))
    axes.legend(ncols=len(labels), loc="lower center", bbox_to_anchor=(0.3, 1.0), fontsize=9,
                handlelength=0.8, columnspacing=0.8, handletextpad=0.4)
    return figure


def ranked_scores(panels: Mapping[str, Mapping[str, tuple[np.ndarray, np.ndarray]]], tau: float
                  ) -> Figure:
    """Scores in falling order against the share of heads, on one axis for models of any size."""
    figure, grid = style.new_axes(3.6, columns=len(panels), sharex=True, sharey=True, squeeze=False)
    for axes, (title, models) in zip(grid[0], panels.items(), strict=True):
        for (model, (mean, ends)), line in zip(models.items(), LINES, strict=False):
            order = np.argsort(-mean, kind="stable")
            percent = 100 * (np.arange(len(mean)) + 1) / len(mean)
            colour = style.colour_of(model)
            axes.fill_between(percent, *ends[order].T, color=colour, alpha=0.2, lw=0, step="mid")
            axes.plot(percent, mean[order], color=colour, lw=1.6, ls=line,
                      label=style.CALLED.get(model, model))
        axes.axhline(tau, color=style.GREY, lw=0.8, ls=":")
        axes.annotate(f"τ = {tau:g}", (100, tau), xytext=(0, 2), textcoords="offset points",
                      ha="right", fontsize=9)
        ticks = [0.1, 1, 10, 100]
        axes.set(xscale="log", title=title, ylim=(0, None))
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.legend(fontsize=9)
    figure.supxlabel("heads, highest first, % of all (logarithmic)", fontsize=10)
    grid[0, 0].set_ylabel("retrieval score")
    return figure


def scores_by_layer(parts: Mapping[str, HeadScores], full: np.ndarray, tau: float) -> Figure:
    """Every head's score at its layer, a panel per part; layers that see everything are shaded."""
    figure, panels = style.new_axes(4.6, columns=len(parts), sharex=True, sharey=True,
                                    squeeze=False)
    for axes, (title, scores) in zip(panels[0], parts.items(), strict=True):
        layers, heads = scores.shape
        rows = np.arange(layers)[:, None] + np.linspace(-0.3, 0.3, heads)
        interval = scores.interval()
        for kind, chosen, colour in (("full layer", full, style.RED),
                                     ("sliding layer", ~full, style.GREY)):
            axes.hlines(rows[chosen].ravel(), *interval[chosen].reshape(-1, 2).T, color=colour,
                        lw=0.8, alpha=0.6)
            axes.plot(scores.mean[chosen].ravel(), rows[chosen].ravel(), "o", ms=2.5,
                      color=colour, label=kind)
        for layer in np.flatnonzero(full):
            axes.axhspan(layer - 0.5, layer + 0.5, color=style.RED, alpha=0.08, lw=0)
        axes.axvline(tau, color=style.GREY, lw=0.8, ls=":")
        axes.set(xlabel=f"retrieval score\n{title}")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    panels[0, 0].set(ylabel="layer", xlim=(0, None), ylim=(-0.7, layers - 0.3))
    panels[0, -1].legend(fontsize=9, loc="lower right")
    return figure


def stability(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Agreement with the full ranking as needles or runs are added; bands over draws."""
    figure, panels = style.new_axes(3.0, columns=2, sharex=True)
    for label, frame in tables.items():
        colour = style.colour_of(label.split()[0])
        for axes, measure in zip(panels, ("overlap", "spearman"), strict=True):
            axes.fill_between(frame["count"], frame[f"{measure}_low"], frame[f"{measure}_high"],
                              color=colour, alpha=0.18, lw=0)
            axes.plot(frame["count"], frame[measure], color=colour, marker="o", ms=3, label=label)
    for axes, name in zip(panels, ("overlap of the top heads", "rank correlation"), strict=True):
        axes.set(xscale="log", xlabel="needles or runs used", ylabel=name, ylim=(0, 1.03))
    panels[0].legend(fontsize=9, loc="lower right")
    return figure
