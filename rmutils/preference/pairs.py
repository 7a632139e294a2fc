"""Preference pairs: a chosen and a rejected response to each instruction (section 3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice

import pandas as pd

from rmutils.core.errors import UserError
from rmutils.core.journal import progress_bar
from rmutils.core.validation import checked
from rmutils.models import LanguageModel
from rmutils.preference.instructions import REDACTED, Instruction
from rmutils.preference.sources import HubDataset, rows

LONG = 2000
"""Tokens above which the authors' scripts flag a response as a likely repetition. The flag is kept,
as theirs is, and nothing is dropped for it."""


@dataclass(frozen=True)
class Pairs:
    """Pairs to train on, and what was left out."""

    table: pd.DataFrame
    # how many, by reason (`empty`, `redacted`, `equal`); one with several faults counts once
    dropped: dict[str, int]

    def __repr__(self) -> str:
        why = ", ".join(f"{count} {reason}" for reason, count in self.dropped.items())
        return f"Pairs({len(self.table)}" + (f", left out: {why})" if why else ")")


@checked
def make_pairs(chosen: pd.DataFrame, rejected: pd.DataFrame) -> Pairs:
    """Put responses to the same instructions side by side.

    Pairs with an empty or redacted response, and those whose responses are exactly equal, teach
    nothing and are dropped, as in the authors' scripts.

    Parameters
    ----------
    chosen, rejected : DataFrame
        As from `respond`.

    Raises
    ------
    UserError
        They answer different instructions, or no pair is left.

    Examples
    --------
    >>> from rmutils import ResponseConfig, load_model, make_pairs, respond
    >>> lm = load_model("tiny-llama", device="cpu")
    >>> config = ResponseConfig(temperature=0, max_new_tokens=4)
    >>> chosen = respond(lm, ["Repeat: the old mill."], config)
    >>> masked = config.changed({"heads": [(3, head) for head in range(16)]})
    >>> make_pairs(chosen, respond(lm, ["Repeat: the old mill."], masked))
    Pairs(1)
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


LONGREWARD = HubDataset(
    "zai-org/LongReward-10k", ("context", "query", "win_response", "lose_response"),
    split="dpo_llama3.1_8b",
    buffer=1000,  # of some 100 KB each
    parquet=False, instead="Or choose another strategy.")
"""Section 4.3: "For LongReward, we use the officially released dataset", "dpo_llama3.1_8b split".
The columns are those that LongReward's `batch_inference/3_get_pairs.py` writes; whether the file
has the same could not be checked. One with others is refused."""


def longreward_pairs(lm: LanguageModel, count: int | None = None, seed: int = 0) -> Pairs:
    """Read LongReward's pairs: long prompts, whose responses come from another model."""
    kept: dict[Instruction, tuple[str, str]] = {}
    dropped: Counter[str] = Counter()
    with progress_bar("pairs of LongReward", count or 10_000, unit="pairs") as advance:
        for row in islice(rows(LONGREWARD, seed), count):
            context, query, win, lose = (row[column] or "" for column in LONGREWARD.columns)
            instruction = Instruction.of(f"{context}\n\n{query}")
            if not (context.strip() and query.strip()):
                dropped["empty"] += 1
            elif instruction in kept:
                dropped["duplicate"] += 1
            else:
                kept[instruction] = win, lose
            advance(1)
    if not kept:
        raise UserError(f"{LONGREWARD.folder or LONGREWARD.id} has no usable row.")
    win, lose = zip(*kept.values(), strict=True)
    pairs = make_pairs(_responses(lm, kept, win), _responses(lm, kept, lose))
    return Pairs(pairs.table, dict(dropped + Counter(pairs.dropped)))


def _responses(lm: LanguageModel, instructions: Collection[Instruction],
               texts: Collection[str]) -> pd.DataFrame:
    """One side, as `rmutils.preference.responses.respond` gives it."""
    return pd.DataFrame({
        "id": [i.id for i in instructions], "instruction": [i.text for i in instructions],
        "text": texts, "tokens": [len(lm.encode(text)) for text in texts], "finished": True})
