"""Figure of what each head is worth by itself."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from rmutils.plots.style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, new_axes

LAYER_COLOURS = BLUE, ORANGE, GREEN, PURPLE, RED, GREY
MARKERS = "osD^vP"


def heads_alone(losses: pd.DataFrame, tau: float) -> Figure:
    """Retrieval score of each head against what is lost without it, with 95 % intervals.

    Parameters
    ----------
    losses : DataFrame
        From `rmutils.evaluation.ablation.losses`; sets of several heads are left out.
    """
    figure, axes = new_axes(size=(5.8, 3.4))
    alone = losses[losses["draw"] < 0]
    layers = alone["heads"].str.split(".").str[0].astype(int)
    for layer, rows in alone.groupby(layers):
        colour = LAYER_COLOURS[layer % len(LAYER_COLOURS)]
        axes.vlines(rows["score"], rows["low"], rows["high"], color=colour, lw=0.9)
        axes.plot(rows["score"], rows["loss"], MARKERS[layer % len(MARKERS)], ms=4.5,
                  color=colour, label=f"layer {layer}")
    axes.axvline(tau, color=GREY, ls="--", lw=1)
    axes.axhline(0, color=GREY, lw=0.8)
    axes.set_xscale("symlog", linthresh=0.01)
    axes.set_xlim(-0.002, 1.1)
    axes.set(xlabel="retrieval score (linear up to 0.01)", ylabel="needles lost without the head")
    axes.legend(loc="upper left")
    return figure
