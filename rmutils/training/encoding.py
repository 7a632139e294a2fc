"""Preference pairs become token ids: exactly what the model read and wrote, and its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from rmutils.core.config import digest
from rmutils.core.errors import UserError
from rmutils.models import LanguageModel
from rmutils.training.conversations import is_conversation
from rmutils.training.recipes import TrainRecipe

COLUMNS = ["prompt", "chosen", "rejected"]
FINISHED = {"chosen": "chosen_finished", "rejected": "rejected_finished"}
"""Columns that tell which answers have an end; without them all do."""


def check_pairs(pairs: pd.DataFrame) -> None:
    """Refuse a table that does not hold pairs."""
    if missing := [column for column in COLUMNS if column not in pairs]:
        raise UserError(f"the pairs have no column {', '.join(missing)}. They need the columns "
                        f"{', '.join(COLUMNS)}, as `rmutils pairs` writes them.")
    if pairs.empty:
        raise UserError("there are no pairs to train on.")
    for column in COLUMNS:
        bad = [row for row, cell in enumerate(pairs[column]) if not (
            cell.strip() if isinstance(cell, str)
            else column == "prompt" and is_conversation(cell))]
        if bad:
            raise UserError(f"column {column} of the pairs has no text in {len(bad)} rows, the "
                            f"first ones {bad[:5]}. Leave those rows out.")
    for column in FINISHED.values():
        if column in pairs and not all(isinstance(cell, bool | np.bool_) for cell in pairs[column]):
            raise UserError(f"column {column} of the pairs has other values than true and false.")
    equal = pairs.index[pairs["chosen"] == pairs["rejected"]]
    if len(equal):
        first = pairs["chosen"][equal[0]].strip().splitlines()[0]
        raise UserError(f"{len(equal)} of {len(pairs)} pairs have the same text on both sides; the "
                        f"first of them begins {first[:80]!r}. Leave them out.")


def digest_of(pairs: pd.DataFrame) -> str:
    """Hash of all that a training takes from pairs."""
    used = [*COLUMNS, *(column for column in FINISHED.values() if column in pairs)]
    return digest(pairs[used].to_dict("list"))


def encode(lm: LanguageModel, pairs: pd.DataFrame, recipe: TrainRecipe) -> dict[str, list]:
    """Token ids of all pairs, by column: for DPO only the prompts are cut; labels for SFT.

    Nothing is written by the chat template once the answer is known, because templates such as
    Qwen3's then leave thoughts out. An answer that was cut at the longest allowed
    (`chosen_finished`, `rejected_finished`) gets no end, so that no model learns to break off; TRL,
    as the authors' script uses it, ends them all.
    """
    if not lm.chat:
        raise UserError(f"{lm.name} has no chat template, so there is no telling how its prompts "
                        f"are written. Train an instruction-tuned model.")
    end = lm.end_of_turn
    prompts = [lm.render(prompt, thinking=recipe.thinking) if isinstance(prompt, str)
               else lm.render_chat(prompt, thinking=recipe.thinking) for prompt in pairs["prompt"]]
    _refuse_second_thoughts(lm, prompts, pairs)
    prompts = [ids[-recipe.max_prompt_length:] for ids in prompts]
    chosen, rejected = (
        [[*ids, end] if whole else ids for ids, whole in
         zip(map(lm.encode, pairs[side]), pairs.get(column, [True] * len(pairs)), strict=True)]
        for side, column in FINISHED.items())
    rows = {"row": [*range(len(pairs))]}
    if recipe.objective == "dpo":
        return rows | {"prompt_ids": prompts, "chosen_ids": chosen, "rejected_ids": rejected}
    both, cut = [*zip(prompts, chosen, strict=True)], recipe.max_length
    return rows | {"input_ids": [(prompt + answer)[:cut] for prompt, answer in both],
                   "labels": [([-100] * len(prompt) + answer)[:cut] for prompt, answer in both]}


def _refuse_second_thoughts(lm: LanguageModel, prompts: Sequence[Sequence[int]],
                            pairs: pd.DataFrame) -> None:
    """An answer cannot begin to think after a prompt that ends with a closed thought."""
    for row, (ids, answer) in enumerate(zip(prompts, pairs["chosen"], strict=True)):
        if answer.lstrip().startswith("<think>") and \
                lm.tokenizer.decode(ids).rstrip().endswith("</think>"):
            raise UserError(f"row {row} of the pairs begins with a thought, but the prompt of "
                            f"{lm.name} ends with an empty one. Train with thinking=True.")


def with_rows(collate: Callable[[list[dict]], dict[str, Tensor]]):
    """A collator whose batches also tell which rows of the pairs are in them, as `row`."""
    def collate_with_rows(examples: list[dict]) -> dict[str, Tensor]:
        rows = torch.tensor([example["row"] for example in examples])
        return {**collate(examples), "row": rows}

    return collate_with_rows
