"""Preference pairs that are conversations, as TRL knows them: lists of messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from rmutils.core.errors import UserError

SIDES = "chosen", "rejected"
ROLES = "system", "user", "assistant"
Messages = list[dict[str, str]]


def without_conversations(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return pairs with answers as texts, and prompts as texts if each is one turn."""
    columns = [name for name in ("prompt", *SIDES) if name in pairs]
    if not any(map(is_conversation, pairs[columns].to_numpy().ravel())):
        return pairs
    prompts: list[Any] = []
    answers: dict[str, list[str]] = {side: [] for side in SIDES}
    for row, cells in enumerate(pairs[columns].to_dict("records")):
        try:
            prompt, *both = _parted(cells)
        except ValueError as error:
            raise UserError(f"row {row} of the pairs: {error}.") from None
        prompts.append(prompt)
        for side, answer in zip(SIDES, both, strict=True):
            answers[side].append(answer)
    if all(len(prompt) == 1 for prompt in prompts):
        prompts = [prompt[0]["content"] for prompt in prompts]
    return pairs.assign(prompt=pd.Series(prompts, pairs.index, dtype=object), **answers)


def is_conversation(cell: object) -> bool:
    """True for a list of messages, also one that comes from a file."""
    return isinstance(cell, list | tuple | np.ndarray) and len(cell) > 0 and all(
        isinstance(one, Mapping) for one in cell)


def _parted(cells: Mapping[str, Any]) -> tuple[Messages, Any, Any]:
    """Return the prompt of a pair, and its two answers."""
    told = {name: _messages(name, cell) if is_conversation(cell) else cell
            for name, cell in cells.items()}
    prompt, chosen, rejected = (told.get(name) for name in ("prompt", *SIDES))
    if isinstance(chosen, list) != isinstance(rejected, list):
        raise ValueError("one side is a list of messages and the other is not")
    if isinstance(chosen, list):
        if not isinstance(prompt, list):
            text, prompt = prompt, chosen[:-1]
            if rejected[:-1] != prompt:
                raise ValueError("the sides differ before their last messages")
            if text is not None and [text] != [one["content"] for one in prompt]:
                raise ValueError("the column prompt has another text than the messages")
            chosen, rejected = chosen[-1:], rejected[-1:]
        for name, side in zip(SIDES, (chosen, rejected), strict=True):
            if [message["role"] for message in side] != ["assistant"]:
                raise ValueError(f"{name} has to add one message of the assistant to the prompt")
        chosen, rejected = chosen[0]["content"], rejected[0]["content"]
    if isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    if not prompt or prompt[-1]["role"] != "user":
        raise ValueError("the prompt has to end with a message of the user")
    return prompt, chosen, rejected


def _messages(name: str, cell: Iterable[Mapping[str, Any]]) -> Messages:
    """Return messages with role and content, which are texts, and nothing else."""
    found = [{key: value for key, value in message.items() if value is not None}
             for message in cell]  # parquet keeps what others have as None
    for message in found:
        if message.keys() != {"role", "content"} or not isinstance(message["content"], str):
            known = ", ".join(sorted(map(str, message)))
            raise ValueError(f"a message of {name} has {known}: only role and content, both "
                             "texts, can be trained on")
        if message["role"] not in ROLES:
            raise ValueError(f"a message of {name} has the role {message['role']!r}, not one of "
                             f"{', '.join(ROLES)}")
    return found
