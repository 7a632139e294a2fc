"""Preference pairs: a chosen and a rejected response to each instruction (section 3)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pandas as pd

from rmutils.contrast.pii import REDACTED
from rmutils.errors import UserError

LONG = 2000
"""Tokens above which the authors' scripts flag a response as a likely repetition. The flag is kept,
as theirs is, and nothing is dropped for it."""


@dataclass(frozen=True)
class Pairs:
    """Pairs to train on, and what was left out.

    Attributes
    ----------
    table : DataFrame
        `id`, `prompt` (the instruction), `chosen`, `rejected`, `chosen_tokens`, `rejected_tokens`
        (as generated: thoughts that were removed count, too), `chosen_finished`,
        `rejected_finished` (False: cut at the longest that was allowed), `long` (one of them has
        more than 2,000 tokens).
    dropped : dict of str to int
        How many pairs were left out, by reason: `empty`, `redacted`, `equal`. A pair with several
        faults counts once.
    """

    table: pd.DataFrame
    dropped: dict[str, int]


def make_pairs(chosen: pd.DataFrame, rejected: pd.DataFrame) -> Pairs:
    """Put responses to the same instructions side by side.

    Pairs with an empty or redacted response, and those whose responses are exactly equal, teach
    nothing and are dropped, as in the authors' scripts.

    Parameters
    ----------
    chosen, rejected : DataFrame
        As from `rmutils.contrast.responses.respond`.

    Raises
    ------
    UserError
        They answer different instructions, or no pair is left.
    """
    if set(chosen["id"]) != set(rejected["id"]):
        raise UserError("the chosen and the rejected responses answer different instructions: "
                        f"{len(set(chosen['id']) ^ set(rejected['id']))} are on one side only.")
    both = chosen.merge(rejected.drop(columns="instruction"), on="id", validate="one_to_one",
                        suffixes=("_chosen", "_rejected"))
    table = both.rename(columns={
        "instruction": "prompt", "text_chosen": "chosen", "text_rejected": "rejected",
        **{f"{what}_{side}": f"{side}_{what}" for what in ("tokens", "finished")
           for side in ("chosen", "rejected")}})
    table["long"] = table[["chosen_tokens", "rejected_tokens"]].max(axis=1) > LONG
    faults = [_fault(*texts) for texts in zip(table["chosen"], table["rejected"], strict=True)]
    kept = table[[fault is None for fault in faults]].reset_index(drop=True)
    dropped = Counter(fault for fault in faults if fault)
    if kept.empty:
        raise UserError(f"none of {len(table)} pairs is left ({dict(dropped)}): the two sides do "
                        f"not differ. Mask more heads, or raise the temperature.")
    return Pairs(kept[["id", "prompt", "chosen", "rejected", "chosen_tokens", "rejected_tokens",
                       "chosen_finished", "rejected_finished", "long"]], dict(dropped))


def _fault(chosen: str, rejected: str) -> str | None:
    if not (chosen.strip() and rejected.strip()):
        return "empty"
    if REDACTED.search(chosen) or REDACTED.search(rejected):
        return "redacted"
    return "equal" if chosen == rejected else None
