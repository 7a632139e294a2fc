"""Many masks side by side: each row of a batch lacks heads of its own.

A head that is masked where the answer is decided, and not while the prompt is read, leaves the
prompt's keys and values as they are. So the prompt is read once, by the whole model, and each mask
gets a row that begins with a copy of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import DynamicCache

from rmutils.heads.scores import Head
from rmutils.models import LanguageModel
from rmutils.models.engine.caches import Trunk, bytes_per_token, keep_rows, stack_caches, view_of
from rmutils.models.engine.generation import in_batches, suiting
from rmutils.models.engine.implementations import writing
from rmutils.models.head_blocks import projections

BATCH_BYTES = {"cpu": 2 * 2**30, "cuda": 6 * 2**30}
"""Keys and values held at once by kind of device: it bounds the memory."""
IDLE = 0.5
"""Share of the rows that may have ended before they are taken out of the batch."""
Masks = NDArray[np.bool_]
"""(rows, layers, heads): True where a head is masked."""


def masks_of(lm: LanguageModel, sets: Sequence[Iterable[Head]]) -> Masks:
    """Return one row for each set of heads.

    Raises
    ------
    UserError
        The model has no such head.
    """
    masks = np.zeros((len(sets), *lm.shape), bool)
    for mask, heads in zip(masks, sets, strict=True):
        for head in lm.checked_heads(heads):
            mask[head] = True
    return masks


@contextmanager
def mask_rows(lm: LanguageModel, masks: Masks) -> Iterator[None]:
    """Switch off, in each row of a batch, heads of its own; on exit all is as before, also after an
    error.

    What a head hands to the output projection becomes zero, as it would with its columns of W_o
    (`rmutils.heads.masking.mask_heads`).
    """
    kept = torch.tensor(~masks, dtype=lm.model.dtype, device=lm.model.device)
    outputs = projections(lm.model)
    with ExitStack() as hooks:
        for i in np.flatnonzero(masks.any((0, 2))):
            hooks.callback(outputs[int(i)].register_forward_pre_hook(_silence(kept[:, i])).remove)
        yield


def _silence(kept: Tensor) -> Callable[[nn.Module, tuple[Tensor]], tuple[Tensor]]:
    """Hook that multiplies the outputs of heads, (rows, tokens, heads x size), by (rows, heads)."""
    def hook(module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        rows, tokens, width = inputs[0].shape
        return ((inputs[0].view(rows, tokens, kept.shape[1], -1) * kept[:, None, :, None]).view(
            rows, tokens, width),)

    return hook


def answer_masked(
    lm: LanguageModel, prompts: Sequence[Sequence[int]], masks: Masks, *, max_new_tokens: int,
    everywhere: bool = False,
) -> Iterator[list[str]]:
    """Answer each prompt greedily under each mask.

    Parameters
    ----------
    prompts : sequence of sequences of int
        Token ids. What one begins with like the one before is not read again.
    masks : ndarray of bool
        (M, layers, heads).
    everywhere : bool
        False: heads are masked in the rows that decide the answer, that is for the last token of
        the prompt and all that follow; the whole model reads what comes before. True: while the
        prompt is read, too, once for each mask.

    Yields
    ------
    list of str
        M answers to a prompt.

    Raises
    ------
    UserError
        Memory does not suffice for a single row.
    """
    readers = masks if everywhere else np.zeros((1, *lm.shape), bool)
    trunks = [Trunk(lm.model, []) for _ in readers]
    read: list[list[DynamicCache]] = []

    def answers() -> Iterator[list[str]]:
        """Answer the prompts that are read."""
        rows = [(prompt, mask) for prompt in range(len(read)) for mask in range(len(masks))]
        size = _rows_at_once(lm, read[0][0], longest + max_new_tokens)
        texts = [text for _, part in in_batches(rows, size, write, "mask") for text in part]
        for start in range(0, len(texts), len(masks)):
            yield texts[start : start + len(masks)]

    def write(rows: Sequence[tuple[int, int]]) -> list[str]:
        caches = [view_of(read[prompt][mask if everywhere else 0]) for prompt, mask in rows]
        return _write(lm, [part[prompt] for prompt, _ in rows], caches,
                      masks[[mask for _, mask in rows]], max_new_tokens)

    longest = max(map(len, prompts), default=0)
    part: list[Sequence[int]] = []
    for prompt in prompts:
        for i, reader in enumerate(readers):
            with mask_rows(lm, reader[None]):
                trunks[i] = Trunk(lm.model, prompt[:-1], before=trunks[i])
        part.append(prompt)
        read.append([trunk.cache for trunk in trunks])
        if len(read) + 1 > _rows_at_once(lm, read[0][0], longest + max_new_tokens) / len(masks):
            yield from answers()
            part, read = [], []
    if read:
        yield from answers()


def _rows_at_once(lm: LanguageModel, cache: DynamicCache, tokens: int) -> int:
    """Return how many rows of so many tokens memory is given to."""
    size = bytes_per_token(cache) * tokens
    return max(int(suiting(lm, BATCH_BYTES) / size), 1) if size else 1


@torch.inference_mode()
def _write(
    lm: LanguageModel, prompts: Sequence[Sequence[int]], caches: list[DynamicCache], masks: Masks,
    room: int,
) -> list[str]:
    """Write greedy answers, one in each row.

    Parameters
    ----------
    prompts : sequence of sequences of int
        The prompt of each row.
    caches : list of DynamicCache
        All tokens of them but the last. They are emptied.
    """
    device, said = lm.model.device, [list[int]() for _ in masks]
    cache, rows = stack_caches(caches, room), np.arange(len(masks))
    before = cache.get_seq_length()
    pads = torch.tensor([before + 1 - len(prompt) for prompt in prompts], device=device)[:, None]
    newest = torch.tensor([prompt[-1] for prompt in prompts], device=device)[:, None]
    columns = torch.arange(before + room, device=device)
    padded, steps = bool(pads.any()), 0
    while len(rows):
        ended: set[int] = set()
        with writing(lm.model), mask_rows(lm, masks[rows]):
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
    return [str(lm.tokenizer.decode(tokens, skip_special_tokens=True)).strip() for tokens in said]
