"""Many masks side by side: each row of a batch lacks heads of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import DynamicCache

from rmutils.heads.scores import Head
from rmutils.models import LanguageModel
from rmutils.models.engine.caches import Trunk, view_of
from rmutils.models.engine.generation import in_batches
from rmutils.models.engine.rows import rows_at_once, write_rows
from rmutils.models.head_blocks import before_each, projections

Masks = NDArray[np.bool_]  # (rows, layers, heads): True where a head is masked


def masks_of(lm: LanguageModel, sets: Sequence[Iterable[Head]]) -> Masks:
    """Return one row for each set of heads."""
    masks = np.zeros((len(sets), *lm.shape), bool)
    for mask, heads in zip(masks, sets, strict=True):
        for head in lm.checked_heads(heads):
            mask[head] = True
    return masks


@contextmanager
def mask_rows(lm: LanguageModel, masks: Masks) -> Iterator[None]:
    """Switch off, in each row of a batch, heads of its own; on exit all is as before."""
    kept = torch.tensor(~masks, dtype=lm.model.dtype, device=lm.model.device)

    def silence(layer: int, module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        each = torch.unflatten(inputs[0], 2, (lm.shape[1], -1))  # (rows, tokens, heads, size)
        return ((each * kept[:, layer][:, None, :, None]).flatten(2),)

    outputs = projections(lm.model)
    with before_each({i: outputs[i] for i in np.flatnonzero(masks.any((0, 2))).tolist()}, silence):
        yield


def answer_masked(
    lm: LanguageModel, prompts: Sequence[Sequence[int]], masks: Masks, *, max_new_tokens: int,
    everywhere: bool = False,
) -> Iterator[list[str]]:
    """Answer each prompt greedily under each of `masks` (M, layers, heads)."""
    readers = masks if everywhere else np.zeros((1, *lm.shape), bool)
    trunks = [Trunk(lm.model, []) for _ in readers]
    read: list[list[DynamicCache]] = []

    def answers() -> Iterator[list[str]]:
        rows = [(prompt, mask) for prompt in range(len(read)) for mask in range(len(masks))]
        size = rows_at_once(lm, read[0][0], longest + max_new_tokens)
        texts = [text for _, part in in_batches(rows, size, write, "mask") for text in part]
        for start in range(0, len(texts), len(masks)):
            yield texts[start : start + len(masks)]

    def write(rows: Sequence[tuple[int, int]]) -> list[str]:
        caches = [view_of(read[prompt][mask if everywhere else 0]) for prompt, mask in rows]
        own = masks[[mask for _, mask in rows]]
        return [str(lm.tokenizer.decode(tokens, skip_special_tokens=True)).strip()
                for tokens in write_rows(lm, [part[prompt] for prompt, _ in rows], caches,
                                         lambda going: mask_rows(lm, own[going]), max_new_tokens)]

    longest = max(map(len, prompts), default=0)
    part: list[Sequence[int]] = []
    for prompt in prompts:
        for i, reader in enumerate(readers):
            with mask_rows(lm, reader[None]):
                trunks[i] = Trunk(lm.model, prompt[:-1], before=trunks[i])
        part.append(prompt)
        read.append([trunk.cache for trunk in trunks])
        if len(read) + 1 > rows_at_once(lm, read[0][0], longest + max_new_tokens) / len(masks):
            yield from answers()
            part, read = [], []
    if read:
        yield from answers()
