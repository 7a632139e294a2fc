"""What a masking sweep (chapter 2) can and cannot tell, in sentences computed from it."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from rmutils.experiments.masking_sweep import Sweep
from rmutils.experiments.sweep_questions import least_right, passing
from rmutils.experiments.sweet_spot import telling
from rmutils.figures.sentences import join, spell


def screening(result: Sweep) -> str:
    """Say which kinds of questions a model was not shown to be able to answer."""
    asked = result.screening
    out = asked.loc[~asked["within_reach"], "task"].tolist()
    return (f"**{len(out)} of {len(asked)} kinds of questions were not shown to be within reach**"
            + (f" ({', '.join(out)})" if out else "") + ".")


def screening_power(result: Sweep) -> str:
    """Say what a screen with so few questions misses."""
    asked = result.screening
    few = asked[asked["samples"] == asked["samples"].min()]
    count, chance = int(few["samples"].iloc[0]), few["chance"].median()
    least = least_right(count, chance)
    return (
        f"They may still be within reach: the screening asks only {spell(count)} questions and "
        f"needs {spell(least)} right. A model that is right half of the time passes it in "
        f"{passing(count, least, 0.5):.0%} of all tries.")


def spots_around(table: pd.DataFrame, tau: float) -> str:
    """Count the sweet spots that a threshold lies in.

    Parameters
    ----------
    table : DataFrame
        As from `rmutils.experiments.sweet_spot.verdicts`.
    """
    counts, spots = table["inside"].value_counts(), f"our {spell(len(table))} sweet spots"
    where = [f"{words} {spell(counts[answer])}" for answer, words in
             (("yes", "inside"), ("no", "outside")) if answer in counts]
    if not where:
        return f"None of {spots} has an upper end, so whether τ = {tau:g} is inside stays open."
    unclear = counts.get("cannot tell", 0)
    return f"τ = {tau:g} is {join(where)} of {spots}" + (
        "." if not unclear else "; the other has no upper end." if unclear == 1 else
        f"; the other {spell(unclear)} have no upper end.")


def spots_by_name(table: pd.DataFrame, model: str, tau: float) -> str:
    """Name the sweet spots that a threshold lies in (`table` as in `spots_around`)."""
    named = table.groupby("inside")["sweet spot by"].apply(list)
    inside = f"the sweet spot by {join(named['yes'])}" if "yes" in named else (
        "none of the sweet spots")
    return f"For {model}, τ = {tau:g} is inside {inside}." + (
        f" By {join(named['cannot tell'])}, the sweep found no upper end, so it cannot decide."
        if "cannot tell" in named else "")


def random_heads_end(result: Sweep) -> str:
    """Say why the line of random others ends before that of the highest heads, if it does."""
    most = result.answers.groupby("policy")["count"].max()
    end = most.get("non-retrieval", 0)
    return "" if end >= most["retrieval"] else (
        f"The lines of other heads end at {end}: where more are masked, too few are left to draw "
        "as many others from.")


def panels_left_out(curves: Mapping[str, pd.DataFrame]) -> str:
    """Name the measures that `rmutils.experiments.sweet_spot.telling` leaves out, if any."""
    left = [name for name in curves if name not in telling(curves)]
    return f"Not drawn, because the intervals span most of the scale: {join(left)}." if left else ""
