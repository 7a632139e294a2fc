"""What chapters 12 and 13 found, in sentences computed from stored results."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from rmutils.attention.variants import PLAIN
from rmutils.book.chapters.share_attention.later_sharing import shown_by
from rmutils.book.chapters.share_attention.savings_curves import (
    by_half,
    hardest_layer,
)
from rmutils.book.figures.report import join, number, spell
from rmutils.core.results import Artifact
from rmutils.stats import Interval, smallest_p

ENDS = ["value", "low", "high"]
RULE = {1: "sharing costs fewer needles if the heads are alike", -1: "random heads share at less "
        "cost than alike ones", 0: "it stays open whether it matters that heads are alike"}
"""What the plan's rule says of a model."""


def alike_or_random(found: pd.DataFrame, missing: int) -> str:
    """Say by the plan's rule what each model shows, and the largest difference at a lowest rate."""
    lowest = found.sort_values("rate").groupby("model", sort=False).head(1).sort_index()
    verdict = shown_by(found)
    by_rule = [f"{_on(verdict.index[verdict == sign], len(verdict))} {words}"
               for sign, words in RULE.items() if (verdict == sign).any()]
    row = lowest.loc[lowest["effect"].idxmax()]
    near = lowest.loc[lowest["low"].idxmin()]
    above = found[found["draws_above"] > 0]
    some = [f"{one.draws_above} of {one.draws} (`{one.model}` at {one.rate:.1%})"
            for one in above.itertuples()]
    return (f"**{'. '.join(by_rule)}** (corrected p at most {lowest['p_holm'].max():.2g}). "
            "The p-value allows for other needles, not for other random heads: "
            + (f"of their draws, {join(some)} find more than alike heads" if some else
               "no draw of them finds more than alike heads")
            + f". The intervals allow for both; the lowest begins at {100 * near.low:.2g} points "
            f"(`{near.model}`). The difference is largest on `{row.model}`: with {row.rate:.0%} of "
            f"its heads computing, it finds {row.share:.0%} of the needles if alike heads share "
            f"and {row.share_base:.0%} if random ones do, {_points(row)} points more."
            + (" One planned measurement is missing." if missing == 1 else
               f" Planned measurements that are missing: {missing}." if missing else ""))


def place_matters(found: pd.DataFrame, keeps_up: pd.DataFrame) -> str:
    """Say in how many models the place of the sharing matters if heads are alike."""
    counts = [[(table["readable"] & clear).sum() for clear in (table["low"] > 0, table["high"] < 0)]
              for table in (found, keeps_up)]
    (later, everywhere), (better, worse) = counts
    shown, others = (join(f"{_points(row)} (`{row.model}`)" for row in table.itertuples())
                     for table in (found, keeps_up))
    return (f"**Where alike heads share matters in {later + everywhere} of {len(found)} models.** "
            f"With {found['rate'].iloc[0]:.1%} of the heads computing, alike heads that share in "
            "later layers find more needles than alike heads that share in all layers, by one "
            f"threshold, in {spell(later)}, and fewer in {spell(everywhere)}; the differences are "
            f"{shown} points.{_unread(found)} One threshold for all layers does better than random "
            f"heads in later ones in {spell(better)} and worse in {spell(worse)}: {others}."
            f"{_unread(keeps_up)} Intervals, not corrected for {len(found) + len(keeps_up)} "
            "comparisons.")


def _unread(found: pd.DataFrame) -> str:
    return "" if found["readable"].all() else f" {unread(found)}"


def by_layer(table: pd.DataFrame, model: str, layers: int, asked: str = "needles") -> str:
    """Say what sharing in one layer costs in each half of the model, and how much of it one layer
    makes.
    """
    done = {"needles": "needles found", "questions": "questions answered"}[asked]
    half = by_half(table, layers).set_index("variant")["effect"]
    layer, change = hardest_layer(table)
    rest = by_half(table[table["variant"] != layer], layers).set_index("variant")["effect"]
    own = "first half" if int(layer) < layers / 2 else "second half"
    count = table["question"].nunique()
    return (f"Sharing in one layer of `{model}` changes the share of {done}, on average, by "
            + join(f"{value:z.2f} in the {name}" for name, value in half.items())
            + f". Layer {layer} alone changes it by {change:z.2f}; without it the {own} is at "
            f"{rest[own]:z.2f}. With {spell(count)} {asked} no p can be below "
            f"{smallest_p(count):g}, so this is no test.")


def _on(models: Sequence[str], of: int) -> str:
    return (f"In all {of} models" if len(models) == of else
            "On " + join(f"`{model}`" for model in models))


def unread(found: pd.DataFrame) -> str:
    """Name the cells of `compare_arms` in which both arms are at the floor or at the ceiling."""
    rows = found[~found["readable"]]
    return ("Every cell can be read: in none are both arms at the floor or at the ceiling."
            if rows.empty else "Not read, because both arms are at the floor or at the ceiling: "
            + join(f"`{row.model}` at {row.rate:.1%}" for row in rows.itertuples()) + ".")


def _points(row) -> str:
    return number(*(100 * x for x in (row.effect, row.low, row.high)))


def took(planned: Sequence[Artifact], others: Sequence[Artifact]) -> str:
    """Say how long stored measurements took: the planned runs, and the others of the chapter."""
    minutes, more = (sum(one.manifest["seconds"] for one in part) / 60
                     for part in (planned, others))
    return (f"The {len(planned)} planned runs took {minutes:.0f} minutes in all"
            + (f", the other measurements of the larger model {more:.0f}." if others else "."))


def sharing_layer(each: pd.DataFrame, model: str, layers: int) -> str:
    """Say which single layers cannot share, and where an answer begins otherwise."""
    right = each.groupby("variant", sort=False)["correct"].agg(["sum", "size"]).astype(int)
    plain, own = right.loc[PLAIN, "sum"], right.drop(index=PLAIN)["sum"]
    lost = own[own < plain / 2]
    lead = ("A single layer can cost half of the needles or more" if len(lost) else
            "No single layer costs half of the needles")
    return (f"**{lead}.** With nearly all heads of one layer sharing, `{model}` finds "
            + (join(f"{count} of {plain} answers (layer {layer} of {layers})"
                    for layer, count in lost.items()) if len(lost) else "at least half as many")
            + f"; in {(own >= plain).sum()} of the {len(own)} layers that we tried it loses none.")


def nearest_heads(
    heads: Sequence[int], apart: float, layer: int, model: str, threshold: float
) -> str:
    """Say which heads of a layer are within a threshold of each other, or how far the nearest are.
    """
    if apart <= threshold:
        return (f"In layer {layer} of {model}, heads {', '.join(map(str, heads))} lie within the "
                f"paper's threshold of {threshold:g}, at most {apart:.2f} apart.")
    return (f"In layer {layer} of {model}, no two heads lie within the paper's threshold of "
            f"{threshold:g}; the nearest two, heads {heads[0]} and {heads[1]}, are {apart:.2f} "
            "apart.")


def beginnings(documents: pd.DataFrame, model: str, words: int = 3) -> str:
    """Say how often an answer begins as the plain model's does, by the layer in which heads share.
    """
    wide = documents.assign(start=[" ".join(text.split()[:words]) for text in
                                   documents["response"]]).pivot(
        index=["question", "place"], columns="variant", values="start")
    same = {name: (wide[name] == wide[PLAIN]).mean() for name in wide if name != PLAIN}
    rare = {i: share for i, share in sorted(same.items(), key=lambda one: int(one[0]))
            if share < 0.5}
    rest = [share for i, share in same.items() if i not in rare]
    return (f"An answer of `{model}` begins with the same {words} words as without sharing in "
            + ("fewer than half of the cases if heads share in layer "
               + join(f"{i} ({share:.0%})" for i, share in rare.items())
               + ("; otherwise in " if rest else "") if rare else "")
            + (f"{min(rest):.0%} to {max(rest):.0%} of the cases" if rest else "") + ".")


def prompt_time(own: Interval, fused: Interval, model: str, rate: float) -> str:
    """Say what reading a prompt costs under Share-Attention."""
    lead = "No time is shown to be saved" if own.high >= 1 else (
        "Sharing saves time" if fused.high < 1 else "Sharing is faster than the same code without "
        "it, but " + ("slower than" if fused.low > 1 else "not shown to be faster than")
        + " the fused kernel that it gives up")
    return (f"**{lead}.** With {rate:.0%} of the heads computing, `{model}` reads a prompt in "
            f"{number(*own)} of the time of the same code without sharing, and in "
            f"{number(*fused)} of that of the plain model.")
