"""Attention of sliding layers in blocks: a query is compared with its own block of keys and the one
before, not with all keys of which its window hides most.

The layers with a window, three of four in Olmo 3, then cost as much as the text is long, not its
square. FlexAttention does the same where it can be compiled.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from rmutils.models.attention import register

NAME = "window_blocks"


def window_blocks(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    **kwargs,
) -> tuple[Tensor, None]:
    """What SDPA gives, with less work where a layer has a window that the tokens are a multiple of.

    Parameters
    ----------
    query : Tensor
        (batch, heads, tokens, head size).
    key, value : Tensor
        (batch, key heads, keys, head size).
    attention_mask : Tensor or None
        (batch, 1, tokens, keys): True where a key is seen. In a layer with a window it must hide
        what lies outside.

    Returns
    -------
    Tensor, None
        (batch, tokens, heads, head size), as transformers expects.
    """
    window, tokens = getattr(module, "sliding_window", None), query.shape[2]
    if attention_mask is None or not window or tokens % window or tokens != key.shape[2]:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    blocks, group = tokens // window, query.shape[1] // key.shape[1]
    key, value = (_with_block_before(part.repeat_interleave(group, dim=1), window)
                  for part in (key, value))
    padded = pad(attention_mask, (window, 0))
    seen = torch.stack([padded[:, :, start:start + window, start:start + 2 * window]
                        for start in range(0, tokens, window)], dim=1)
    output = scaled_dot_product_attention(
        _in_blocks(query, window).flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1),
        attn_mask=seen.flatten(0, 1), scale=scaling)
    return output.unflatten(0, (-1, blocks)).transpose(2, 3).flatten(1, 2), None


def _in_blocks(states: Tensor, window: int) -> Tensor:
    """(batch, blocks, heads, window, head size)."""
    return states.unflatten(2, (-1, window)).transpose(1, 2)


def _with_block_before(states: Tensor, window: int) -> Tensor:
    """(batch, blocks, heads, 2 windows, head size); before the first block there are zeros."""
    blocks = _in_blocks(states, window)
    before = pad(blocks, (0, 0, 0, 0, 0, 0, 1, 0))[:, :-1]
    return torch.cat([before, blocks], dim=3)


register(NAME, window_blocks)
