"""What chapter 11 found, in sentences computed from the planned measurements."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from rmutils.experiments.under_variants import changes, perplexities
from rmutils.figures.report import number
from rmutils.figures.sentences import join
from rmutils.pipeline.planned_runs import Plan
from rmutils.stats import Interval

MANY, ONE = "1 to 1.5", "all 1.25"
"""Ratios of the same mean."""
CHANGE = ["change", "change_low", "change_high"]


def points(found: Interval) -> str:
    """Return a share with its interval, in points of 100."""
    return number(*(100 * end for end in found))


def beyond_length(table: pd.DataFrame, variant: str = MANY) -> str:
    """Say which models gain in the middle of texts that are longer than those they learned from.

    Parameters
    ----------
    table : DataFrame
        As from `rmutils.experiments.ms_poe.gains`.
    """
    rows = table.query("cause == '' and part == 'middle' and variant == @variant")
    helped, harmed = (rows["low"] > 0).sum(), (rows["high"] < 0).sum()
    told = "; ".join(
        f"{row.model} {points((row.value, row.low, row.high))} points, from {row.plain:.0%}"
        for row in rows.itertuples())
    return (f"**Beyond the trained length, ratios of {variant} help {helped} of {len(rows)} models"
            + (f" and harm {harmed}" if harmed else "")
            + f".** Needles found in the middle of {rows['length'].iloc[0]:,} tokens change by: "
            f"{told}.")


def two_causes(found: Mapping[str, Interval], plan: Plan, models: int) -> str:
    """Apply the rule of the plan to what `rmutils.experiments.ms_poe.tested` computed.

    Parameters
    ----------
    models : int
        How many models have both causes.
    """
    a, b, more = found["A"], found["B"], found["B less A"]
    if found["dip of A"].low <= 0 or found["loss of B"].low <= 0:
        verdict = "Which loss Ms-PoE repairs could not be tested: a loss was not made as planned"
    elif more.low > 0 and b.low > 0 and a.low <= 0:
        verdict = ("As predicted, Ms-PoE repairs a loss over distances that were never seen, and "
                   "not one by where answers stood in training")
    elif b.high < 0 or a.low > 0:
        verdict = ("Against the prediction, Ms-PoE "
                   + ("harms where distances are new" if b.high < 0 else
                      "repairs a loss by where answers stood in training"))
    else:
        verdict = "Which loss Ms-PoE repairs stays undecided"
    planned = len(plan.content["causes"]["models"])
    of = ("" if models == planned else f", from {models} of {planned} planned models" + (
        ", so that intervals are over needles alone" if models == 1 else ""))
    return (f"**{verdict}{of}.** Answers in the outer fifths of the training texts cost the "
            f"middle {points(found['dip of A'])} points, of which Ms-PoE brings back {points(a)}; "
            f"texts of twice the trained length cost it {points(found['loss of B'])}, of which "
            f"Ms-PoE brings back {points(b)}.")


def many_or_one(texts: pd.DataFrame) -> str:
    """Compare the perplexity of short texts under many ratios and under one of the same mean."""
    parts, lower = [], 0
    models = texts["model"].unique()
    for model in models:
        own = texts[texts["model"] == model]
        rises = perplexities(own).set_index("variant")[CHANGE]
        less = changes(own, "nats", ONE).set_index("variant").loc[MANY]
        lower += less["high"] < 0
        parts.append(f"{model} +{points(rises.loc[MANY])} % against +{points(rises.loc[ONE])} %")
    return (f"**Many ratios cost less than one of the same mean in {lower} of {len(models)} "
            f"models.** Where nothing is far away, perplexity rises under ratios of {MANY}, and "
            f"under {ONE.removeprefix('all ')} for all heads: {join(parts)}.")


def distance_alone(scores: Mapping[str, pd.DataFrame], near: int, far: int) -> str:
    """Say in how many heads a key loses by distance alone, and whether the loss is steady."""
    parts = []
    for model, table in scores.items():
        wide = table.pivot(index=["layer", "head"], columns="distance", values="score")
        falls = (wide[far] < wide[near]).mean()
        steady = (wide.diff(axis=1).iloc[:, 1:] <= 0).all(axis=1).mean()
        parts.append(f"in {model} {falls:.0%} of the heads score a key lower at {far:,} tokens "
                     f"than at {near:,}, by {(wide[near] - wide[far]).median():.1f} in the median, "
                     f"and {steady:.0%} fall at every step on the way")
    return f"On average there is a decay, but no steady one: {join(parts)}."
