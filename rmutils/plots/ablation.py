"""Figure of what each head is worth by itself."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from rmutils.plots.style import BLUE, GREY, RED, new_axes


def heads_alone(losses: pd.DataFrame, tau: float) -> Figure:
    """What is lost without each head, layer by layer, with 95 % intervals.

    Parameters
    ----------
    losses : DataFrame
        From `rmutils.evaluation.ablation.losses`; sets of several heads are left out.
    tau : float
        Heads with at least this score are drawn as retrieval heads.
    """
    figure, axes = new_axes(size=(5.8, 3.2))
    alone = losses[losses["draw"] < 0].reset_index(drop=True)
    retrieval = alone["score"] >= tau
    for part, colour, marker, label in ((~retrieval, BLUE, "o", "other heads"),
                                        (retrieval, RED, "D", "retrieval heads")):
        rows = alone[part]
        axes.vlines(rows.index, rows["low"], rows["high"], color=colour, lw=0.9)
        axes.plot(rows.index, rows["loss"], marker, ms=3.5, color=colour, label=label)
    axes.axhline(0, color=GREY, lw=0.8)
    layers = alone["heads"].str.split(".").str[0]
    for layer, places in alone.groupby(layers).groups.items():
        axes.axvline(max(places) + 0.5, color=GREY, lw=0.5)
        axes.annotate(f"layer {layer}", (sum(places) / len(places), 0), xytext=(0, -14),
                      xycoords=("data", "axes fraction"), textcoords="offset points", ha="center")
    axes.set_xticks([])
    axes.set(xlim=(-0.5, len(alone) - 0.5), ylabel="needles lost without the head")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    return figure
