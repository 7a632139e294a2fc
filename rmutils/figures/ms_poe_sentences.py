"""What chapter 11 found, in sentences computed from the planned measurements."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from rmutils.experiments.strained_positions import (
    ALL,
    CAUSES,
    gains,
    positions,
    tested,
    within_length,
)
from rmutils.experiments.under_variants import perplexities
from rmutils.figures.report import by_sign, join, number, spell
from rmutils.paper.verdicts import blind_spot
from rmutils.pipeline.planned_runs import Plan, load_plan
from rmutils.stats import Interval

MANY, ONE = "1 to 1.5", "all 1.25"
"""Ratios of the same mean."""
LARGE = "smollm2-135m"
LARGE_MANY, LARGE_ONE = "1 to 2", "all 1.5"
"""The same for the larger model; the one ratio leaves its first two layers alone."""
YARN = "YaRN"
CHANGE = ["change", "change_low", "change_high"]


def points(found: Interval) -> str:
    """Return a share with its interval, in points of 100."""
    return number(*(100 * end for end in found))


def beyond_length(table: pd.DataFrame, variant: str = MANY) -> str:
    """Say which models gain in the middle of texts that are longer than those they learned from.

    Parameters
    ----------
    table : DataFrame
        As from `rmutils.experiments.strained_positions.gains`.
    """
    middle = table.query("cause == '' and part == 'middle'")
    rows = middle[middle["variant"] == variant]
    full = [f"{row.model} finds {row.plain:.0%} already, too many to show a gain" for row in
            rows.itertuples() if blind_spot(100 * row.plain, 0, row.model)]
    able = [row for row in rows.itertuples() if not blind_spot(100 * row.plain, 0, row.model)]
    helped, harmed = sum(row.low > 0 for row in able), sum(row.high < 0 for row in able)
    told = [f"{row.model} finds {row.plain:.0%} and gains "
            f"{points(Interval(row.value, row.low, row.high))} points" for row in able]
    names = {row.model for row in able}
    others = [f"{words} helps {(part['low'] > 0).sum()}" for name, words in (
        (ONE, "One ratio of the same mean"), (YARN, YARN))
        if len(part := middle[(middle["variant"] == name) & middle["model"].isin(names)])]
    of = f"{helped} of {len(able)} models that could show it" if len(rows) > 1 else (
        "the one model measured" if helped else "no model measured")
    return (f"**Beyond the trained length, ratios of {variant} help {of}"
            + (f" and harm {harmed}" if harmed else "")
            + f".** In the middle of {rows['length'].iloc[0]:,} tokens {'; '.join(told + full)}."
            + (f" {'; '.join(others)}." if others else ""))


def verdict_on_causes(found: Mapping[str, Interval], plan: Plan, models: int) -> str:
    """Apply the rule of the plan to what `rmutils.experiments.strained_positions.tested` computed.

    Parameters
    ----------
    models : int
        How many models have both causes.
    """
    a, b, more = found["A"], found["B"], found["B less A"]
    failed = [words for name, words in (
        ("dip of A", "a dip in the middle by where answers stood"),
        ("loss of B", "a loss in texts of twice the trained length")) if found[name].low <= 0]
    if failed:
        verdict = (f"The prediction could not be tested: {join(failed)} "
                   f"{'is' if len(failed) == 1 else 'are'} not shown over so few models")
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
    of = "" if models == planned else f" ({models} of {planned} planned models" + (
        "; intervals are over needles alone)" if models == 1 else ")")
    return f"**{verdict}{of}.**"


def two_causes(found: Mapping[str, Interval], plan: Plan, models: int) -> str:
    """Give `verdict_on_causes` with the numbers that decide it."""
    dip, loss = found["dip of A"], found["loss of B"]
    return verdict_on_causes(found, plan, models) + (
        f" Trained on answers in the outer fifths, A finds {points(dip)} points less in the middle "
        f"than at the ends; trained on answers anywhere, B loses {points(loss)} points of the "
        "middle in texts of twice its trained length." if min(dip.low, loss.low) <= 0 else
        f" Ms-PoE changes the middle of A, trained on answers in the outer fifths, by "
        f"{points(found['A'])} points, and that of B, in texts of twice its trained length, by "
        f"{points(found['B'])}.")


def new_distances(table: pd.DataFrame, length: int) -> str:
    """Say how many models each variant helps where distances are new: B, beyond its length.

    Parameters
    ----------
    table : DataFrame
        As from `rmutils.experiments.strained_positions.gains`.
    length : int
        Tokens of the texts beyond the trained length.
    """
    rows = table.query("cause == 'B' and length == @length and part == 'middle' "
                       "and model != @ALL")
    counts = rows.assign(helped=rows["low"] > 0, harmed=rows["high"] < 0).groupby(
        "variant", sort=False)[["helped", "harmed"]].sum()
    models, most = rows["model"].nunique(), counts["helped"].max()
    best = [f"*{name}*" for name, count in counts["helped"].items() if count == most > 0]
    harm = [f"*{name}* harms {count}" for name, count in counts["harmed"].items() if count]
    lead = (f"{join(best)} {'help' if len(best) > 1 else 'helps'} most models, {most} of {models}"
            f"{' each' * (len(best) > 1)}" if best else
            f"none of {len(counts)} variants helps any of {models} models")
    return (f"Where distances are new, {lead}{'; ' * bool(harm)}{', '.join(harm)} (by intervals, "
            f"not corrected for {len(rows)} comparisons).")


def many_or_one(texts: pd.DataFrame) -> str:
    """Compare the perplexity of short texts under many ratios and under one of the same mean."""
    found, lower, higher = {}, 0, 0
    models = texts["model"].unique()
    for model in models:
        own = texts[texts["model"] == model]
        less = perplexities(own, ONE).set_index("variant").loc[MANY, CHANGE]
        lower += less["change_high"] < 0
        higher += less["change_low"] > 0
        found[model] = less
    lead = (f"In {lower} of {len(models)} teaching models, many ratios cost less than one of the "
            "same mean" if lower else "In the teaching models, many ratios are not shown to cost "
            "less than one of the same mean")
    if higher:
        lead += f", and in {spell(higher)} of them they cost more"
    most = max(found, key=lambda model: abs(found[model].iloc[0]))
    return (f"**{lead}.** The two differ most on {most}: perplexity of short texts under ratios of "
            f"{MANY} differs by {points(found[most])} % from that under "
            f"{ONE.removeprefix('all ')} for all heads.")


def many_or_one_large(texts: pd.DataFrame, model: str) -> str:
    """Make the comparison of `many_or_one` for the larger model."""
    more = Interval(*perplexities(texts, LARGE_MANY).set_index("variant").loc[LARGE_ONE, CHANGE])
    lead = by_sign(more, "many ratios cost less than one", "many ratios cost more than one",
                   "many ratios are not shown to cost less than one, or more")
    return (f"**On `{model}`, {lead}.** Perplexity with their mean, "
            f"{LARGE_ONE.removeprefix('all ')}, for all heads of all layers but the first two is "
            f"{points(more)} % above that with ratios of {LARGE_MANY} in all layers.")


def distance_alone(scores: Mapping[str, pd.DataFrame], near: int, far: int) -> str:
    """Say in how many heads a key loses by distance alone, and whether the loss is steady."""
    lower, steady, heads = [], 0, 0
    for model, table in scores.items():
        wide = table.query("@near <= distance <= @far").pivot(
            index=["layer", "head"], columns="distance", values="score")
        fall = wide[near] - wide[far]
        lower.append(f"{(fall > 0).mean():.0%} of the heads of {model} (median {fall.median():.1f}"
                     " less)")
        steady += int((wide.diff(axis=1).iloc[:, 1:] <= 0).all(axis=1).sum())
        heads += len(wide)
    return (f"A key scores lower at {far:,} tokens than at {near:,}, by distance alone, in "
            f"{join(lower)}. Of all {heads} heads, {steady or 'none'} "
            f"{'falls' if steady < 2 else 'fall'} at every step on the way.")


def claims_of_the_summary() -> list[tuple[str, str, int, str]]:
    """Compare the claims of the summary of Ms-PoE with the stored measurements.

    Returns
    -------
    list of (str, str, int, str)
        Place (its heading), claim (translated), chapter, and what was found here.
    """
    plan = load_plan("ms_poe")
    tables, _, _ = positions(plan)
    if not tables:
        return []
    table = gains(tables["needles"])
    models = paired_models(table)
    strained, large = tables["texts"].query("cause == ''"), within_length(LARGE)
    return [
        ("背景と動機", "The decay of rotary positions is one cause of the loss in the middle", 11,
         two_causes(tested(tables["needles"], plan), plan, len(models)) if models
         else "Not all planned runs are stored."),
        ("Needle-in-a-Haystack", "Beyond the trained length the middle gains 14 points", 11,
         beyond_length(table)),
        ("マルチスケールの鍵", "One ratio for all heads destroys what they know of neighbours", 11,
         many_or_one(strained) + ("" if large.missing else " " + many_or_one_large(
             large.tables["texts"], LARGE)))]


def paired_models(table: pd.DataFrame) -> list[str]:
    """Return the models that have both causes, from a table of `strained_positions.gains`."""
    return [name for name, part in table[table["cause"] != ""].groupby("model")
            if name != ALL and part["cause"].nunique() == len(CAUSES)]
