"""Attention that also says where each head looks hardest, for the rows that decide a token.

Which key a head looks at most is all that a retrieval score needs. `output_attentions=True` would
keep every row of every head, about 4 L H N^2 bytes; here one row per head is reduced to one index.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from rmutils.models.attention import register, using

NAME = "retrieval_capture"


class ArgMaxRecorder:
    """Collects, for one forward pass, the key index with the largest attention of each head."""

    def __init__(self) -> None:
        self._layers: dict[int, Tensor] = {}

    def record(self, layer: int, index: Tensor) -> None:
        """Keep the indices of one layer, shape (batch, heads)."""
        self._layers[layer] = index

    def take(self) -> Tensor:
        """All layers, shape (batch, layers, heads); empties the recorder."""
        stacked = torch.stack([self._layers[layer] for layer in sorted(self._layers)], dim=1)
        self._layers.clear()
        return stacked


def retrieval_capture(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    recorder: ArgMaxRecorder | None = None,
    **kwargs,
) -> tuple[Tensor, None]:
    """Attention of one decoding step that also records the arg-max key of every head.

    Without a `recorder` (prefill) it is SDPA and nothing else. The recorder travels as a keyword
    argument of the model's `forward`; the pass that carries it has one query row.

    Parameters
    ----------
    query : Tensor
        (batch, heads, queries, head size).
    key, value : Tensor
        (batch, key heads, keys, head size); query head h reads key head h // (heads / key heads).
    attention_mask : Tensor or None
        (batch, 1, queries, keys): True where a key may be seen.

    Returns
    -------
    Tensor, None
        (batch, queries, heads, head size), as transformers expects.
    """
    if recorder is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
    batch, heads, _, size = query.shape
    # float32: in bfloat16 neighbouring scores tie. Grouped by key head: no copy of the keys.
    grouped = query.float().view(batch, key.shape[1], -1, size)
    products = grouped @ key.float().transpose(2, 3) * scaling  # (batch, key heads, group, keys)
    if attention_mask is not None:
        products = products.masked_fill(~attention_mask, -torch.inf)
    recorder.record(module.layer_idx, products.argmax(-1).view(batch, heads))
    output = products.softmax(-1).to(value.dtype) @ value
    return output.view(batch, 1, heads, size), None


@contextmanager
def capturing(model: PreTrainedModel) -> Iterator[ArgMaxRecorder]:
    """Switch the model to this attention; on exit its own comes back, also after an error."""
    with using(model, NAME):
        yield ArgMaxRecorder()


register(NAME, retrieval_capture)
