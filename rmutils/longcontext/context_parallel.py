"""Two ways to attend to a long sequence: in blocks, and what context parallelism costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from rmutils.models.changes import register

WINDOW_BLOCKS = "window_blocks"


def window_blocks(module: nn.Module, query: Tensor, key: Tensor, value: Tensor,
                  attention_mask: Tensor | None, *, scaling: float,
                  **kwargs) -> tuple[Tensor, None]:
    """Compute what SDPA gives, with less work where windows or documents allow."""
    window, tokens = getattr(module, "sliding_window", None), query.shape[2]
    lengths = None if window or attention_mask is None else documents_of(attention_mask)
    if not lengths and (attention_mask is None or not window or tokens % window
                        or tokens != key.shape[2]):
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    group = query.shape[1] // key.shape[1]
    key, value = (part.repeat_interleave(group, dim=1) for part in (key, value))
    if lengths:
        parts = zip(*(part.split(lengths, dim=2) for part in (query, key, value)), strict=True)
        return torch.cat([scaled_dot_product_attention(*part, is_causal=True, scale=scaling)
                          for part in parts], dim=2).transpose(1, 2), None
    blocks = tokens // window
    key, value = (_with_block_before(part, window) for part in (key, value))
    padded = pad(attention_mask, (window, 0))
    seen = torch.stack([padded[:, :, start:start + window, start:start + 2 * window]
                        for start in range(0, tokens, window)], dim=1)
    output = scaled_dot_product_attention(
        _in_blocks(query, window).flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1),
        attn_mask=seen.flatten(0, 1), scale=scaling)
    return output.unflatten(0, (-1, blocks)).transpose(2, 3).flatten(1, 2), None


def documents_of(mask: Tensor) -> list[int] | None:
    """Return the tokens of each document, if a mask keeps documents apart; otherwise None."""
    rows, _, tokens, keys = mask.shape
    if rows > 1 or tokens != keys or mask.dtype != torch.bool:
        return None
    number = (mask[0, 0].sum(-1) == 1).cumsum(0)  # the first of a document sees itself alone
    if not torch.equal(mask[0, 0], (number[:, None] == number).tril()):
        return None
    return number.unique_consecutive(return_counts=True)[1].tolist()


def _in_blocks(states: Tensor, window: int) -> Tensor:
    """(batch, blocks, heads, window, head size)."""
    return states.unflatten(2, (-1, window)).transpose(1, 2)


def _with_block_before(states: Tensor, window: int) -> Tensor:
    """(batch, blocks, heads, 2 windows, head size); before the first block there are zeros."""
    blocks = _in_blocks(states, window)
    before = pad(blocks, (0, 0, 0, 0, 0, 0, 1, 0))[:, :-1]
    return torch.cat([before, blocks], dim=3)


register(WINDOW_BLOCKS, window_blocks)


def communication(tokens: int, ranks: int, *, layers: int, key_heads: int, head_size: int,
                  bytes_each: int = 2) -> int:
    """Bytes of keys and values that each process receives in a forward pass of one sequence."""
    return 2 * layers * key_heads * head_size * bytes_each * tokens * (ranks - 1) // ranks


def balance(tokens: int, ranks: int, window: int | None = None) -> list[float]:
    """Share of all attended pairs of tokens that falls to each slice, with causal attention."""
    seen = torch.arange(1, tokens + 1, dtype=torch.float64)
    if window:
        seen = seen.clamp(max=window)
    return (seen.view(ranks, -1).sum(1) / seen.sum()).tolist()


def packed_balance(instances: Sequence[Sequence[int]], capacity: int, ranks: int,
                   window: int | None = None) -> np.ndarray:
    """Work (attended pairs) of each slice over its instance's mean, (instances, ranks)."""
    work = np.zeros((len(instances), capacity))
    for row, lengths in zip(work, instances, strict=True):
        seen = np.concatenate([np.arange(1, length + 1) for length in lengths])
        row[:len(seen)] = np.minimum(seen, window or capacity)
    slices = work.reshape(len(instances), ranks, -1).sum(2)
    return np.asarray(slices / slices.mean(1, keepdims=True))
