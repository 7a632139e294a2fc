"""What measurements of heads under variants say, by rules that were fixed before any was made."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from rmutils.evaluation.variants.curves import PLAIN
from rmutils.evaluation.variants.heads_curves import agreements
from rmutils.evaluation.variants.heads_losses import OTHERS, masking, training
from rmutils.evaluation.variants.measure import Tables
from rmutils.evaluation.variants.traits import DISTANCE, KEYS

HALF = 0.5
"""Of the retrieval heads, of the needles, and of pairs of heads."""
ALPHA = 0.05
DRAWS = 3
"""Random choices of other heads, at least."""
MEANING = {KEYS: ("position-aware", "the opposite of position-aware"),
           DISTANCE: ("unlike other heads", "redundant")}
"""What it says of retrieval heads if they have more of a trait, or less."""


def heads_stay(tables: Tables) -> dict[str, str]:
    """By variant: whether the highest heads of plain attention are still the highest."""
    overlap = agreements(tables).query("quantity == 'overlap'").set_index("variant")
    told = {}
    for name in tables["cases"]["variant"].unique():
        if name in overlap.index:
            row = overlap.loc[name]
            told[name] = "they stay" if row["low"] >= HALF else (
                "they are replaced" if row["high"] < HALF else "open")
        elif name != PLAIN:
            told[name] = "no needle was found both times, so there are no scores to compare"
    return told


def masking_hurts(tables: Tables) -> dict[str, str]:
    """By variant: whether masking retrieval heads costs more than masking others."""
    needles = tables["needles"]
    others = needles[needles["subject"] == OTHERS].groupby("variant")["draw"].nunique()

    def tell(row: Mapping[str, pd.Series]) -> str:
        if others[row["found"]["variant"]] < DRAWS:
            return f"others were drawn fewer than {DRAWS} times"
        if row["found"]["value"] < HALF:
            return "too few needles are found"
        return _sign(row["excess"], "masking them hurts more than others",
                     "masking them hurts less than others",
                     "no difference to others that stands out") + _sign(
            row["excess, change"], ", and more so than under plain attention",
            ", and less so than under plain attention")

    return _told(masking(tables["needles"]), tell)


def training_helps(tables: Tables) -> dict[str, str]:
    """By variant: whether trained models find more needles."""
    def tell(row: Mapping[str, pd.Series]) -> str:
        return _sign(row["gain"], "RetMask gains", "RetMask loses",
                     "RetMask neither gains nor loses measurably") + _sign(
            row["gain, change"], "; the difference is higher than under plain attention",
            "; the difference is lower than under plain attention")

    return _told(training(tables["needles"]), tell)


def sets_apart(row: pd.Series) -> str:
    """Whether a trait sets retrieval heads apart.

    Parameters
    ----------
    row : Series
        Of `rmutils.evaluation.variants.traits.set_apart`.
    """
    if row["p"] >= ALPHA or row["low"] <= HALF <= row["high"]:
        return "it does not set retrieval heads apart"
    more, less = MEANING[row["trait"]]
    return f"retrieval heads are {more if row['value'] > HALF else less}"


def _told(frame: pd.DataFrame, tell: Callable[[Mapping[str, pd.Series]], str]) -> dict[str, str]:
    return {name: tell({row["quantity"]: row for _, row in part.iterrows()})
            for name, part in frame.groupby("variant", sort=False)}


def _sign(row: pd.Series, above: str, below: str, neither: str = "") -> str:
    return above if row["low"] > 0 else below if row["high"] < 0 else neither
