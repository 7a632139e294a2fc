"""Gain against sparsity, and where one more model stands."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from rmutils.evaluation.forecast import Forecast
from rmutils.plots.style import BLUE, GREY, ORANGE, RED, new_axes


def forecasts(found: Mapping[str, Forecast], sparsity: tuple[float, float, float], name: str
              ) -> Figure:
    """A panel per kind of models: each with its gain, the line with its 95 % prediction band.

    Parameters
    ----------
    found : mapping
        Kind of models -> what they foretell.
    sparsity : tuple of float
        Of the model in question, with its 95 % interval: the upright line and its shade.
    name : str
        Of the measure of sparsity.
    """
    figure, panels = new_axes(columns=len(found), size=(5.8, 2.9), squeeze=False)
    value, low, high = sparsity
    for axes, colour, (kind, one) in zip(panels[0], (BLUE, RED), found.items(), strict=False):
        axes.axvspan(low, high, color=ORANGE, alpha=0.35, lw=0)
        axes.axvline(value, color=ORANGE, lw=1.6)
        axes.axhline(0, color=GREY, lw=0.8)
        known = one.known
        axes.plot(known["sparsity"], known["gain"], "o", ms=4, color=colour)
        if one.line:
            x = np.linspace(min(known["sparsity"].min(), low), max(known["sparsity"].max(), high))
            drawn = one.line.at(x)
            axes.plot(x, drawn[:, 0], color=colour, lw=1)
            axes.fill_between(x, drawn[:, 1], drawn[:, 2], color=colour, alpha=0.12, lw=0)
            axes.set_ylim(*_limits(known["gain"].to_numpy()))
        axes.set(title=f"{kind} ({one.models})", xlabel=f"sparsity ({name})")
    panels[0, 0].set_ylabel("gain by RetMask, points")
    return figure


def _limits(gains: np.ndarray) -> tuple[float, float]:
    """Room around the gains, though a band may leave it: three points have a band of hundreds."""
    room = max(np.ptp(gains), 1)
    return min(gains.min(), 0) - room, gains.max() + room
