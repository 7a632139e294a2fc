"""Figures of exchanged heads: what they return, what they lose, and when."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rmutils.book.chapters.is_it_causal.experiment import COPY, REMOVE, RESTORE, IsItCausal
from rmutils.book.chapters.is_it_causal.findings import effects, room, token_leaders
from rmutils.book.figures import report
from rmutils.book.figures.head_figures import heads_by_token
from rmutils.book.figures.style import BLUE, GREY, INK, ORANGE, PURPLE, RED, new_axes
from rmutils.heads.scores import Head


def exchanged_sets(results: Mapping[str, IsItCausal]) -> Figure:
    """Tokens of the answer that are right by how many heads are restored, or removed."""
    figure, panels = new_axes(4.6, 2, len(results), sharey=True, squeeze=False)
    for column, (model, result) in enumerate(results.items()):
        table, start = effects(result), 1 - room(result).value
        for axes, way, sign, base in ((panels[0, column], RESTORE, 1, start),
                                      (panels[1, column], REMOVE, -1, 1.0)):
            part = table[table["way"] == way]
            counts = sorted(part["count"].unique())
            lines = [(colour, marker, f"by {kind}", part.loc[part["kind"] == kind, "top"])
                     for colour, marker, kind in zip((BLUE, PURPLE), "os", part["kind"].unique(),
                                                     strict=False)]
            lines.append((ORANGE, "^", "others, same layers",
                          part.loc[part["kind"] == COPY, "control"]))
            for shift, (colour, marker, label, found) in enumerate(lines):
                value, low, high = (base + sign * np.array([[*one] for one in found], float)).T
                place = np.arange(1, len(counts) + 1) + 0.09 * (shift - 1)
                axes.plot([0, *place], [base, *value], color=colour, lw=1.2, marker=marker, ms=4,
                          label=label)
                axes.vlines(place, np.minimum(low, high), np.maximum(low, high), color=colour, lw=1)
            axes.axhline(start if way == REMOVE else 1.0, color=GREY, lw=0.8, ls=":")
            axes.set_xticks(range(len(counts) + 1), [0, *counts], fontsize=9)
            axes.tick_params(labelsize=9)
        panels[0, column].set_title(model, fontsize=9.5)
    for axes, way in zip(panels[:, 0], (RESTORE, REMOVE), strict=True):
        axes.set_ylabel(f"tokens right, heads {way}d", fontsize=9)
        axes.set_ylim(-0.03, 1.05)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), fontsize=9, ncols=3,
                  loc="outside upper left", handlelength=1.2)
    figure.supxlabel("heads exchanged together (dotted: all heads)", fontsize=9.5)
    return figure


def exchange_table(results: Mapping[str, IsItCausal]) -> pd.DataFrame:
    """Return all effects of exchanged sets, in points, as a page shows them."""
    table = pd.concat([effects(result).assign(model=name) for name, result in results.items()],
                      ignore_index=True)
    shown = {column: report.intervals(100 * pd.DataFrame([*table[column]]))
             for column in ("top", "control", "difference")}
    return table.assign(**shown)[[
        "model", "way", "kind", "count", *shown, "p", "p_holm", "needles"]].rename(columns={
            "kind": "heads by", "count": "heads", "top": "these heads", "control": "others",
            "p_holm": "p, corrected"})


def restored_by_token(result: IsItCausal, model: str) -> Figure:
    """One answer token by token: what each head restores alone."""
    case = result.singles.groupby("case", sort=False)["step"].nunique().idxmax()
    part = result.singles[result.singles["case"] == case]
    leaders = token_leaders(result).query("case == @case").set_index("step")["leader"]
    grid = part.pivot(index=["layer", "head"], columns="step", values="restored")
    shown = list(dict.fromkeys([*grid.sum(axis=1).nlargest(8).index, *leaders]))
    grid = grid.loc[shown]
    words = part.drop_duplicates("step").sort_values("step")["token"]
    figure, axes = new_axes(1.3 + 0.24 * len(grid))
    most = float(np.abs(grid.to_numpy()).max())
    dots = pd.DataFrame([(*head, step) for step, head in leaders.items()],
                        columns=["layer", "head", "step"])
    heads_by_token(axes, grid, words, dots, cmap="PuOr_r", low=-most, high=most, label="nats")
    axes.set_title(f"{model}: what each head restores alone", loc="left", fontsize=10)
    return figure


def copy_scores_by_length(table: pd.DataFrame, heads: Sequence[Head]) -> Figure:
    """Copy scores of two heads over the length of the prompt, and their difference."""
    figure, (scores, less) = new_axes(3.4, rows=2, sharex=True, height_ratios=(3, 2))
    for (layer, head), column, colour, marker in zip(
            heads, ("first", "second"), (BLUE, RED), ("o", "s"), strict=True):
        scores.plot(table["length"], table[column], color=colour, marker=marker, ms=4,
                    label=f"head {layer}-{head}")
    scores.legend(fontsize=9)
    value, low, high = np.array([[*one] for one in table["difference"]], float).T
    less.axhline(0, color=GREY, lw=0.8)
    less.vlines(table["length"], low, high, color=INK, lw=1.2)
    less.plot(table["length"], value, "o", color=INK, ms=4)
    scores.set_ylabel("copy score", fontsize=9.5)
    less.set_ylabel("difference", fontsize=9.5)
    less.set_xscale("log", base=2)
    less.set_xticks(table["length"], [f"{n:,}" for n in table["length"]], fontsize=9)
    less.set_xlabel("prompt length (tokens)", fontsize=9.5)
    return figure
