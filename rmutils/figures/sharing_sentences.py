"""What chapters 12 and 13 found, in sentences computed from stored results."""

from __future__ import annotations

import pandas as pd

from rmutils.attention.variants import PLAIN
from rmutils.experiments.later_sharing import shown_by
from rmutils.experiments.under_variants import levels
from rmutils.figures.report import number
from rmutils.figures.sentences import join
from rmutils.stats import Interval

ENDS = ["value", "low", "high"]
RULE = {1: "sharing costs fewer needles if the heads are alike", -1: "random heads share at less "
        "cost than alike ones", 0: "it stays open whether it matters that heads are alike"}
"""What the plan's rule says of a model."""


def alike_or_random(found: pd.DataFrame, first: str) -> str:
    """Say the verdict of the plan on each model, and the numbers of one of them.

    Parameters
    ----------
    found : DataFrame
        As from `rmutils.experiments.later_sharing.primary`.
    first : str
        The model whose numbers are told.
    """
    verdict = shown_by(found)
    by_rule = [f"On {join(f'`{model}`' for model in verdict.index[verdict == sign])} {words}"
               for sign, words in RULE.items() if (verdict == sign).any()]
    own = found[found["model"] == first]
    return f"**{'. '.join(by_rule)}.** " + " ".join(
        f"With {row.rate:.1%} of its heads computing, `{first}` finds {row.share:.0%} of the "
        f"needles if alike heads share and {row.share_base:.0%} if random ones do: {_points(row)} "
        f"points (corrected p = {row.p_holm:.2g})." for row in own.itertuples())


def unread(found: pd.DataFrame) -> str:
    """Name the cells of `compare_arms` in which both arms are at the floor or at the ceiling."""
    rows = found[~found["readable"]]
    return ("Every cell can be read: in none are both arms at the floor or at the ceiling."
            if rows.empty else "Not read, because both arms are at the floor or at the ceiling: "
            + join(f"`{row.model}` at {row.rate:.1%}" for row in rows.itertuples()) + ".")


def _points(row) -> str:
    return number(*(100 * x for x in (row.effect, row.low, row.high)))


def sharing_layer(each: pd.DataFrame, model: str, layers: int) -> str:
    """Say which single layers cannot share, and where an answer begins otherwise.

    Parameters
    ----------
    each : DataFrame
        Needles of `rmutils.experiments.layer_choice.layers`, with heads sharing in one layer.
    layers : int
        Of the model.
    """
    right = each.groupby("variant", sort=False)["correct"].agg(["sum", "size"]).astype(int)
    plain, own = right.loc[PLAIN, "sum"], right.drop(index=PLAIN)["sum"]
    lost = own[own < plain / 2]
    return (f"**One layer decides most.** Let nearly all heads of one layer of `{model}` share: "
            + (join(f"in layer {layer} of {layers} it finds {count}" for layer, count in
                    lost.items()) if len(lost) else "in no layer does it lose half of its needles")
            + f" of {right.loc[PLAIN, 'size']} needles; in {(own >= plain).sum()} of the "
            f"{len(own)} layers that we tried it finds all {plain} that it finds without sharing.")


def beginnings(documents: pd.DataFrame, model: str, words: int = 3) -> str:
    """Say how often an answer begins as the plain model's does, by the layer in which heads share.

    Parameters
    ----------
    documents : DataFrame
        Documents of `rmutils.experiments.layer_choice.layers`.
    words : int
        How many words are a beginning.
    """
    wide = documents.assign(start=[" ".join(text.split()[:words]) for text in
                                   documents["response"]]).pivot(
        index=["question", "place"], columns="variant", values="start")
    same = {name: (wide[name] == wide[PLAIN]).mean() for name in wide if name != PLAIN}
    shown = sorted(same, key=int)
    return (f"{model}: answers whose first {words} words are those of the plain model, by the "
            "layer in which heads share: " + ", ".join(
                f"{same[i]:.0%} (layer {i})" for i in shown) + ".")


def prompt_or_steps(recall: pd.DataFrame, model: str, layer: int, p: float) -> str:
    """Say what choosing once would miss of the needle, and what choosing at each step holds.

    Parameters
    ----------
    recall : DataFrame
        Of `rmutils.experiments.layer_choice.recall`.
    p : float
        The largest p that is told.
    """
    part = recall[(recall["layer"] == layer) & (recall["p"] <= p)].assign(variant="x")
    once, later = (levels(part, column, ["p"]).set_index("p") for column in ("prompt", "next"))
    seen = part.groupby("p")["answer_kept"].mean()
    ends = (once.index.min(), once.index.max())
    lead = ("Choosing once, from the prompt, misses the needle; choosing at each step finds it."
            if (once["high"] < later["low"]).all() else
            "It is not shown that choosing at each step finds more than choosing once.")
    return (f"**{lead}** At p of {ends[0]:g} to {ends[1]:g}, the prompt's last token chooses "
            f"{once['value'].min():.0%} to {once['value'].max():.0%} of the needle's tokens in "
            f"layer {layer} of `{model}`. When a token of the needle is to be copied, that step "
            "has chosen it in " + " and in ".join(
                f"{number(*later.loc[at, ENDS])} of all cases (p = {at:g}, {seen[at]:.0%} of all "
                "tokens selected)" for at in ends) + ".")


def prompt_time(own: Interval, fused: Interval, model: str, rate: float) -> str:
    """Say what reading a prompt costs under Share-Attention.

    Parameters
    ----------
    own, fused : Interval
        Time as a multiple of that of the same code without sharing, and of SDPA.
    rate : float
        Share of the heads that compute.
    """
    lead = {(True, True): "Sharing saves time", (True, False): "Sharing saves time against its own "
            "code, but not against the fused kernel that it gives up"}.get(
                (own.high < 1, fused.high < 1), "No time is shown to be saved")
    return (f"**{lead}.** With {rate:.0%} of the heads computing, `{model}` reads a prompt in "
            f"{number(*own)} of the time of the same code without sharing, and in "
            f"{number(*fused)} of that of the plain model.")
