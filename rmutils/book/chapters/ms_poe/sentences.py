"""What chapter 11 found, in sentences computed from the planned measurements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from rmutils.book.chapters.ms_poe.experiment import (
    ALL,
    CAUSES,
    gains,
    misread_ranges,
    positions,
    tested,
    within_length,
)
from rmutils.book.experiments.under_variants import perplexities
from rmutils.book.figures.report import by_sign, join, number, spell
from rmutils.book.verdicts import blind_spot
from rmutils.core.experiment import Plan, load_plan
from rmutils.stats import Interval

MANY, ONE = "1 to 1.5", "all 1.25"
"""Ratios of the same mean."""
REVERSED, AUTHORS = "1.5 to 1", "1.2 to 1.8, by prompt"
LARGE = "smollm2-135m"
LARGE_MANY, LARGE_ONE = "1 to 2", "all 1.5"
"""The same for the larger model; the one ratio leaves its first two layers alone."""
YARN = "YaRN"
CHANGE = ["change", "change_low", "change_high"]


def points(found: Interval) -> str:
    """Return a share with its interval, in points of 100."""
    return number(*(100 * end for end in found))


def beyond_length(table: pd.DataFrame, variant: str = MANY) -> str:
    """Say which models gain in the middle of texts that are longer than those they learned from."""
    middle = table.query("cause == '' and part == 'middle'")
    rows = middle[middle["variant"] == variant]
    full = [f"{row.model} finds {row.plain:.0%} already, too many to show a gain" for row in
            rows.itertuples() if blind_spot(100 * row.plain, 0, row.model)]
    able = [row for row in rows.itertuples() if not blind_spot(100 * row.plain, 0, row.model)]
    helped, harmed = sum(row.low > 0 for row in able), sum(row.high < 0 for row in able)
    told = [f"{row.model} finds {row.plain:.0%}{_change(row)}" for row in able]
    names = {row.model for row in able}
    others = [f"{words} helps {(part['low'] > 0).sum()}" for name, words in (
        (ONE, "One ratio of the same mean"), (YARN, YARN))
        if len(part := middle[(middle["variant"] == name) & middle["model"].isin(names)])]
    of = f"{helped} of {len(able)} models that could show it" if len(rows) > 1 else (
        "the one model measured" if helped else "no model measured")
    return (f"**Beyond the trained length, ratios of {variant}, our own setting, help {of}"
            + (f" and harm {harmed}" if harmed else "")
            + f".** In the middle of {rows['length'].iloc[0]:,} tokens {'; '.join(told + full)}."
            + (f" {'; '.join(others)}." if others else ""))


def _interval(row: Any) -> Interval:
    return Interval(row.value, row.low, row.high)


def _change(row: Any) -> str:
    change = points(_interval(row))
    return by_sign(_interval(row), f" and gains {change} points", f" and loses, by {change} points",
                   f", and its change of {change} points can go either way")


def authors_setting(table: pd.DataFrame) -> str:
    """Say how the authors' own ratios change the middle of texts beyond the trained length."""
    rows = table.query("cause == '' and part == 'middle' and variant == @AUTHORS")
    helped, harmed = (rows["low"] > 0).sum(), (rows["high"] < 0).sum()
    changed = [f"{points(_interval(row))} points on {row.model}"
               for row in rows.itertuples()]
    return (f"The authors' own setting, *{AUTHORS}*, helps {spell(helped)} of {len(rows)} models "
            f"and harms {spell(harmed)}: the middle changes by {join(changed)}.")


def many_against(needles: pd.DataFrame) -> str:
    """Compare many ratios with one ratio of the same mean and with the reversed order, by the
    needles found in the middle of texts beyond the trained length.
    """
    told, supported = [], False
    for base, words in ((ONE, f"one ratio of {ONE.removeprefix('all ')}"),
                        (REVERSED, "the reversed order")):
        rows = gains(needles.query("cause == '' and variant in [@MANY, @base]"), base)
        rows = rows[rows["part"] == "middle"]
        supported |= bool((rows["low"] > 0).any())
        told.append(f"minus {words}: " + join(f"{points(_interval(row))} ({row.model})"
                                              for row in rows.itertuples()))
    lead = "Many ratios can be better than their controls" if supported else (
        "Nothing supports many ratios over one, or the order of the formula over its reverse")
    return f"{lead}. Points in the middle, {MANY} {'; '.join(told)}."


def large_ranges(table: pd.DataFrame, plan: Plan) -> str:
    """Say what the plan's large ratios are, and which recommended ones were not measured."""
    ranges, shown = misread_ranges(plan), labels(plan)
    rows = table.query("cause == '' and part == 'middle' and variant in @shown.values()")
    if rows.empty:
        return ""
    measured = {*table.query("cause == ''")["variant"]}
    ends = dict.fromkeys(f"1 to {end:g}" for pair in ranges.values() for end in pair)
    most = f"at most {found:.0%}" if (found := rows["found"].max()) else "none"
    lacking = [name for name in ends if name not in measured]
    return ("**A misreading in the plan.** The summary's large ranges are ranges of the highest "
            "ratio, that of the last head; its first head keeps 1. We took them for the ratios of "
            "all heads, so "
            + join(f"under *{shown[name]}* none has a ratio below {low:g}"
                   for name, (low, _) in ranges.items())
            + f". That they find {most} of the needles in the middle says nothing of what the "
            "summary recommends"
            + (f": ratios of {join(lacking)} were not measured at {rows['length'].iloc[0]:,} "
               "tokens." if lacking else "."))


def labels(plan: Plan) -> dict[str, str]:
    """How a page names variants whose planned name misleads: no head of theirs has a ratio of 1."""
    return {name: f"all heads at {name}" for name in misread_ranges(plan)}


def widths(table: pd.DataFrame) -> str:
    """Say how wide the intervals of a table of `strained_positions.gains` are."""
    width = 100 * (table["high"] - table["low"])
    by_part = width.groupby(table["part"], sort=False).median()
    return ("The intervals are wide: they span "
            + join(f"{median:.0f} points ({part})" for part, median in by_part.items())
            + f" in the median, {width.min():.0f} to {width.max():.0f} in all.")


def nothing_to_repair(changed: pd.DataFrame, model: str) -> str:
    """Say whether any variant helps a model within its trained length."""
    helped, harmed = (changed["low"] > 0).sum(), (changed["high"] < 0).sum()
    return (f"Within the trained length, {spell(helped)} of {len(changed)} variants "
            f"{'is' if helped < 2 else 'are'} shown to help `{model}` answer questions to "
            f"documents, and {spell(harmed)} {'is' if harmed < 2 else 'are'} shown to harm it.")


def verdict_on_causes(found: Mapping[str, Interval], plan: Plan, models: int) -> str:
    """Apply the rule of the plan to what `rmutils.book.chapters.ms_poe.experiment.tested` computed.
    """
    a, b, more = found["A"], found["B"], found["B less A"]
    failed = [words for name, words in (
        ("dip of A", "training on answers at the ends makes a dip in the middle"),
        ("loss of B", "texts of twice the trained length cost needles")) if found[name].low <= 0]
    if failed:
        verdict = (f"The prediction could not be tested. {spell(models).capitalize()} "
                   f"{'model is' if models == 1 else 'models are'} too few to show that "
                   + " or that ".join(failed))
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
    """Say how many models each variant helps where distances are new: B, beyond its length."""
    rows = table.query("cause == 'B' and length == @length and part == 'middle' "
                       "and model != @ALL")
    counts = rows.assign(helped=rows["low"] > 0, harmed=rows["high"] < 0).groupby(
        "variant", sort=False)[["helped", "harmed"]].sum()
    models, most = rows["model"].nunique(), counts["helped"].max()
    best = [f"*{name}*" for name, count in counts["helped"].items() if count == most > 0]
    harm: dict[int, list[str]] = {}
    for name, count in counts["harmed"].items():
        if count:
            harm.setdefault(int(count), []).append(f"*{name}*")
    lead = (f"{spell(len(best))} variant{'s help' if len(best) > 1 else ' helps'} {most} of "
            f"{models} models ({join(best)})" if best else
            f"none of {len(counts)} variants helps any of {models} models")
    harms = [f"{spell(len(names))} harm{'s' * (len(names) == 1)} {count} ({join(names)})"
             for count, names in sorted(harm.items())]
    return (f"Where distances are new, {lead}{'; ' * bool(harms)}{join(harms) if harms else ''}. "
            f"These are intervals, not corrected for {len(rows)} comparisons.")


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
    less = Interval(*found[most])
    differs = (f"{points(Interval(-less.value, -less.high, -less.low))} % lower"
               if less.value < 0 else f"{points(less)} % higher")
    return (f"**{lead}.** The two differ most on {most}: perplexity of short texts under ratios of "
            f"{MANY} is {differs} than under {ONE.removeprefix('all ')} for all heads.")


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
    """Compare the claims of the summary of Ms-PoE with the stored measurements."""
    plan = load_plan("ms_poe")
    tables, _ = positions()
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
         " ".join((beyond_length(table), authors_setting(table),
                   many_against(tables["needles"])))),
        ("マルチスケールの鍵", "One ratio for all heads destroys what they know of neighbours", 11,
         many_or_one(strained) + ("" if large.missing else " " + many_or_one_large(
             large.tables["texts"], LARGE)))]


def paired_models(table: pd.DataFrame) -> list[str]:
    """Return the models that have both causes, from a table of `strained_positions.gains`."""
    return [name for name, part in table[table["cause"] != ""].groupby("model")
            if name != ALL and part["cause"].nunique() == len(CAUSES)]
