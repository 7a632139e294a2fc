"""The pairs that LongReward released: the existing method of section 4.3."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import islice

import pandas as pd

from rmutils.contrast.hub import HubDataset, rows
from rmutils.contrast.instructions import Instruction
from rmutils.contrast.pairs import Pairs, make_pairs
from rmutils.errors import UserError
from rmutils.models import LanguageModel
from rmutils.progress import progress_bar

LONGREWARD = HubDataset(
    "zai-org/LongReward-10k", ("context", "query", "win_response", "lose_response"),
    split="dpo_llama3.1_8b",
    buffer=1000,  # of some 100 KB each
    parquet=False, instead="Or choose another strategy.")
"""Section 4.3: "For LongReward, we use the officially released dataset", "dpo_llama3.1_8b split".
The data card names this split, and its file `dpo-llama3.1-8b.jsonl`. The columns are those that
LongReward's `batch_inference/3_get_pairs.py` writes; that the file has the same could not be
checked when this was written. One with others is refused, with the name of what is missing."""


def longreward_pairs(lm: LanguageModel, count: int | None = None, *, seed: int = 0) -> Pairs:
    """LongReward's pairs as ours: long prompts, whose responses come from another model.

    The prompt is the context, an empty line and the query, as in the example of LongReward's
    README. It stays whole; training cuts it (`TrainRecipe.max_prompt_length`). The paper does not
    say how these pairs were cut.

    Parameters
    ----------
    lm : LanguageModel
        Its tokenizer counts the tokens of the responses.
    count : int, optional
        Rows that are drawn, at most; default: all. The data card speaks of 10,000.
    seed : int
        Order of the rows.

    Returns
    -------
    Pairs
        Dropped as `empty` is also what has no context or no query, as `duplicate` a prompt that
        was there before.

    Raises
    ------
    UserError
        The data set cannot be reached or read, or no pair is left.
    """
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


def _responses(
    lm: LanguageModel, instructions: Collection[Instruction], texts: Collection[str]
) -> pd.DataFrame:
    """One side, as `rmutils.contrast.responses.respond` gives it."""
    tokens = lm.tokenizer([*texts], add_special_tokens=False)["input_ids"]
    return pd.DataFrame({
        "id": [i.id for i in instructions], "instruction": [i.text for i in instructions],
        "text": texts, "tokens": [len(ids) for ids in tokens], "finished": True})
