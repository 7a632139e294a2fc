"""Figures about needles and heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from rmutils.corpora.niah import NiahCase
from rmutils.heads.decoding import Answer
from rmutils.heads.scores import Head, HeadScores
from rmutils.plots.style import BLUE, GREY, ORANGE, SEQUENTIAL, colour_of, new_axes
from rmutils.stats import cluster_bootstrap, percentiles


def arg_max_rows(
    case: NiahCase, answer: Answer, written: Sequence[str], heads: Mapping[str, Head]
) -> Figure:
    """Where heads look, token by token: a panel per head, a dot per written token.

    Parameters
    ----------
    written : sequence of str
        The answer's tokens as text.
    heads : mapping
        Panel title -> (layer, head).
    """
    figure, panels = new_axes(columns=len(heads), size=(5.8, 0.6 + 0.19 * len(written)),
                              sharey=True, squeeze=False)
    steps = np.arange(len(written))
    for panel, (title, (layer, head)) in zip(panels[0], heads.items(), strict=True):
        seen = answer.positions[:, layer, head]
        start, end = case.needle_span
        panel.axvspan(start - 0.5, end - 0.5, color=ORANGE, alpha=0.35, lw=0)
        inside = (seen >= start) & (seen < end)
        panel.scatter(seen[~inside], steps[~inside], s=14, color=GREY)
        panel.scatter(seen[inside], steps[inside], s=18, color=BLUE)
        panel.axvline(len(case.input_ids), color=GREY, lw=0.8, ls=":")
        panel.set(title=title, xlabel="position looked at (tokens)",
                  xlim=(-4, len(case.input_ids) + len(written)))
    panels[0, 0].set(yticks=steps, yticklabels=[w.replace("$", r"\$") for w in written],
                     ylabel="token written")
    panels[0, 0].invert_yaxis()
    panels[0, 0].tick_params(axis="y", labelsize=7)
    return figure


def success_map(cases: pd.DataFrame) -> Figure:
    """Share of needles found, by prompt length and depth."""
    grid = cases.pivot_table(index="depth", columns="length", values="success", aggfunc="mean")
    figure, axes = new_axes(size=(5.8, 3.8))
    image = _cells(axes, grid.to_numpy(), 1)
    for (i, j), share in np.ndenumerate(grid.to_numpy()):
        axes.text(j, i, f"{100 * share:.0f}", ha="center", va="center", fontsize=8,
                  color="black" if share > 0.55 else "white")
    axes.set_xticks(range(len(grid.columns)), grid.columns)
    axes.set_yticks(range(len(grid.index)), [f"{100 * d:.0f} %" for d in grid.index])
    axes.set(xlabel="prompt length (tokens)", ylabel="depth of the needle")
    _scale(figure, image, label="needles found")
    return figure


def success_curves(cases: pd.DataFrame) -> Figure:
    """Share of needles found by length and by depth, with 95 % intervals over needles."""
    figure, panels = new_axes(columns=2, size=(5.8, 2.8), sharey=True)
    labels = {"length": "prompt length (tokens)", "depth": "depth (0 start, 1 end)"}
    for axes, (column, label) in zip(panels, labels.items(), strict=True):
        x, centre, ends = [], [], []
        for value, group in cases.groupby(column):
            found = group["success"].to_numpy(dtype=float)
            x.append(value)
            centre.append(found.mean())
            ends.append(percentiles(cluster_bootstrap(found, group["needle"].to_numpy())))
        errors = np.abs(np.array(ends).T - np.array(centre))
        axes.errorbar(x, centre, yerr=errors, marker="o", ms=4, capsize=3, color=BLUE)
        axes.set(xlabel=label, ylim=(0, 1.03))
    panels[0].set_ylabel("needles found")
    return figure


def head_map(scores: HeadScores, tau: float) -> Figure:
    """Mean score of every head, layers x heads; those at or above `tau` are outlined."""
    layers, heads = scores.shape
    wide = heads <= layers  # draw the longer side across the page
    values = scores.mean.T if wide else scores.mean
    figure, axes = new_axes(size=(5.8, 0.9 + 0.24 * min(values.shape)))
    image = _cells(axes, values, max(scores.mean.max(), tau))
    for layer, head in scores.select(tau=tau):
        x, y = (layer, head) if wide else (head, layer)
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, ec=ORANGE, lw=1.4))
    names = ("layer", "head")
    axes.set(xlabel=names[not wide], ylabel=names[wide])
    _scale(figure, image, label="retrieval score", pad=0.01)
    return figure


def _cells(axes: Axes, values: np.ndarray, highest: float) -> QuadMesh:
    """A matrix as a map, its first row on top: of shapes, where `imshow` would put in pixels."""
    rows, columns = map(np.arange, values.shape)
    axes.invert_yaxis()
    return axes.pcolormesh(columns, rows, values, cmap=SEQUENTIAL, vmin=0, vmax=highest,
                           edgecolor="face", linewidth=0.3)  # without edges, gaps shine through


def _scale(figure: Figure, mesh: QuadMesh, **kwargs) -> None:
    """The scale of its colours, of shapes too."""
    figure.colorbar(mesh, **kwargs).solids.set(rasterized=False, edgecolor="face")


def agreement(small: HeadScores, large: HeadScores, top_k: int) -> Figure:
    """Mean scores of a small against a large grid, a dot per head; the top heads are marked."""
    figure, axes = new_axes(size=(4.4, 3.6))
    axes.scatter(large.mean, small.mean, s=10, color=GREY)
    colour = colour_of(large.model)
    top = tuple(zip(*large.select(top_k=top_k), strict=True))
    axes.scatter(large.mean[top], small.mean[top], s=26, color=colour,
                 label=f"top {top_k} of the large grid")
    axes.vlines(large.mean[top], *small.interval()[top].T, color=colour, lw=0.8)
    axes.hlines(small.mean[top], *large.interval()[top].T, color=colour, lw=0.8)
    limit = max(large.mean.max(), small.mean.max()) * 1.05
    axes.plot([0, limit], [0, limit], color=GREY, lw=0.8, ls=":")
    axes.set(xlabel="score on the large grid", ylabel="score on the small grid")
    axes.legend(loc="upper left")
    return figure
