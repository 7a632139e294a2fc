"""Greedy answers in the rows of one batch, each under a condition of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import numpy as np
import torch
from transformers import DynamicCache

from rmutils.models.engine.caches import bytes_per_token, keep_rows, stack_caches
from rmutils.models.engine.generation import suiting
from rmutils.models.engine.implementations import writing
from rmutils.models.language_model import LanguageModel

BATCH_BYTES = {"cpu": 2 * 2**30, "cuda": 6 * 2**30}
"""Keys and values held at once by kind of device: it bounds the memory."""
IDLE = 0.5  # share of the rows that may have ended before they are taken out of the batch
Under = Callable[[Sequence[int]], AbstractContextManager[None]]
"""Puts a model under the conditions of some rows, in their order, for a while."""


def rows_at_once(lm: LanguageModel, cache: DynamicCache, tokens: int) -> int:
    """Return how many rows of so many tokens memory is given to."""
    size = bytes_per_token(cache) * tokens
    return max(int(suiting(lm, BATCH_BYTES) / size), 1) if size else 1


@torch.inference_mode()
def write_rows(lm: LanguageModel, prompts: Sequence[Sequence[int]], caches: list[DynamicCache],
               under: Under, room: int) -> list[list[int]]:
    """Write greedy answers, one in each row."""
    device, said = lm.model.device, [list[int]() for _ in prompts]
    cache, rows = stack_caches(caches, room), np.arange(len(prompts))
    before = cache.get_seq_length()
    pads = torch.tensor([before + 1 - len(prompt) for prompt in prompts], device=device)[:, None]
    newest = torch.tensor([prompt[-1] for prompt in prompts], device=device)[:, None]
    columns = torch.arange(before + room, device=device)
    padded, steps = bool(pads.any()), 0
    while len(rows):
        ended: set[int] = set()
        with writing(lm.model), under(rows.tolist()):
            while len(ended) <= IDLE * len(rows):
                visible = columns[: before + steps + 1] >= pads if padded else None
                newest = lm.model(
                    input_ids=newest, attention_mask=visible, position_ids=before + steps - pads,
                    past_key_values=cache, use_cache=True).logits[:, -1].argmax(-1, keepdim=True)
                steps += 1
                for place, token in enumerate(newest[:, 0].tolist()):
                    if place in ended:
                        continue
                    if token not in lm.stop_ids:
                        said[rows[place]].append(token)
                    if token in lm.stop_ids or steps == room:
                        ended.add(place)
        going = [place for place in range(len(rows)) if place not in ended]
        rows, newest, pads = rows[going], newest[going], pads[going]
        keep_rows(cache, going)
    return said
