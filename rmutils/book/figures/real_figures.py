"""Needles that the real models find without some of their heads, in order of size."""

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd
from IPython.display import HTML
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rmutils.book.experiments.masked_needles import ANYWHERE, MATCHED, TOP, WHOLE
from rmutils.book.figures.report import how_made
from rmutils.book.figures.style import BLUE, CALLED, GREY, INK, ORANGE, new_axes
from rmutils.core.experiment import Plan
from rmutils.core.results import Artifact

POLICIES = {TOP: ("heads that copy most", BLUE, "o", "-"),
            ANYWHERE: ("others from anywhere", GREY, "s", "--"),
            MATCHED: ("others of the same layers", ORANGE, "^", ":")}
"""Policy -> label, colour, marker, line."""
MARKS = {WHOLE: ("whole model", INK, "o", -0.2), TOP: ("without the top heads", BLUE, "D", 0.0),
         MATCHED: ("without others of their layers", ORANGE, "^", 0.2)}
"""Policy -> label, colour, marker, place within the row."""


def needles_left_figure(shares: pd.DataFrame, heads: Mapping[str, int]) -> Figure:
    """Needles found against the share of masked heads, a panel for each model."""
    figure, grid = new_axes(5.4, 2, 2, sharex=True, sharey=True)
    for axes, (model, total) in zip(grid.flat, heads.items(), strict=False):
        own = shares[shares["model"] == model]
        _curves(axes, own, total)
        axes.set_title(f"{CALLED.get(model, model)} ({total} heads)")
    for axes in grid.flat[len(heads):]:
        axes.set_axis_off()
    first = grid.flat[0]
    first.set(xscale="log", ylim=(-4, 104))
    ticks = [0.3, 1, 3, 10, 30]
    first.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    first.minorticks_off()
    first.legend(loc="upper left", fontsize=9, labelcolor="linecolor")
    figure.supxlabel("heads masked, % of all (logarithmic)", fontsize=10)
    figure.supylabel("needles found, %", fontsize=10)
    return figure


def _curves(axes: Axes, own: pd.DataFrame, total: int) -> None:
    """Lines with intervals, each named where it ends."""
    whole = 100 * own.loc[own["policy"] == WHOLE, "value"].iloc[0]
    axes.axhline(whole, color=INK, lw=0.8, ls="--", label="whole model")
    for i, (policy, (label, colour, marker, line)) in enumerate(POLICIES.items()):
        part = own[own["policy"] == policy].sort_values("count")
        if part.empty:
            continue
        percent = 100 * part[["value", "low", "high"]].to_numpy()
        x = 100 * part["count"] / total * 1.05**i  # so that no bar hides another
        axes.errorbar(x, percent[:, 0], yerr=np.abs(percent[:, 1:] - percent[:, :1]).T,
                      label=label, color=colour, marker=marker, ls=line, ms=4, lw=1.4, capsize=2)


def needles_by(shares: pd.DataFrame, column: str, names: Mapping[str, str]) -> Figure:
    """Needles found whole and without heads, a panel for each model and a row for each name."""
    models = [*shares["model"].unique()]
    figure, grid = new_axes(1.1 + 0.42 * len(names), columns=len(models), sharex=True, sharey=True,
                            flat=True)
    drawn = {}
    for axes, model in zip(grid, models, strict=True):
        own = shares[shares["model"] == model]
        for policy, (label, colour, marker, shift) in MARKS.items():
            part = own[own["policy"] == policy]
            if column == "score" and policy == WHOLE:  # the same beside each score
                part = part.drop(columns=column).merge(pd.DataFrame({column: [*names]}), "cross")
            part = part[part[column].isin(names)]
            places = np.array([[*names].index(name) for name in part[column]], float) + shift
            axes.hlines(places, 100 * part["low"], 100 * part["high"], color=colour, lw=1.4,
                        label=label)
            drawn[label], = axes.plot(100 * part["value"], places, marker, color=colour, ms=4.5,
                                      label=label)
        axes.set_title(CALLED.get(model, model))
    grid[0].set_yticks(range(len(names)), [*names.values()])
    grid[0].set(xlim=(-4, 104), ylim=(len(names) - 0.5, -0.5))
    figure.supxlabel("needles found, %", fontsize=10)
    figure.legend(drawn.values(), drawn, loc="outside upper center", ncols=len(drawn))
    return figure


def how_asked(plan: Plan, artifacts: Iterable[Artifact], rows: Mapping[str, object]) -> HTML:
    """One fold: how it was asked, by which plan and commands, on which machines, deviations."""
    artifacts = list(artifacts)
    manifests = [artifact.manifest for artifact in artifacts]
    return how_made({
        **rows, "plan": f"data/plans/{plan.name}.yml, {plan.digest}",
        "deviations": " ".join([*plan.deviations(
            a for a in artifacts if "plan" in a.manifest["facts"]),
            *filter(None, [rows.get("deviations")])]) or "none",
        "results": ", ".join(artifact.name for artifact in artifacts),
        "commands": "; ".join(dict.fromkeys(one["command"] for one in manifests)),
        "machines": "; ".join(dict.fromkeys(
            str(one["environment"]["hardware"]) for one in manifests))})
