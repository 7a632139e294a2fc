"""Share-Attention: heads of a layer that look alike are given the weights of one of them.

Taniguchi and others (undated), section 4.1. Which heads share is found beforehand
(`rmutils.attention.sharing_plans`); at run time queries and keys of the other heads are not
compared at all. Each head keeps its own values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from rmutils.attention.retrieval_capture import (
    ArgMaxRecorder,
    newest_products,
    recording_by_layer,
)
from rmutils.errors import UserError
from rmutils.files import parse_json
from rmutils.models.attention import attached

NAME = "share_attention"
Sharing = dict[int, dict[int, list[int]]]
"""Layer -> head that is computed (an essential head) -> heads that its weights are given to."""


def head_counts(sharing: Sharing) -> tuple[int, int]:
    """Essential heads, and all heads."""
    return (sum(map(len, sharing.values())),
            sum(1 + len(others) for layer in sharing.values() for others in layer.values()))


def retention(sharing: Sharing) -> float:
    """Share of all heads whose weights are computed (the paper's retention rate), 0 to 1."""
    essential, heads = head_counts(sharing)
    return essential / heads


def multiply_adds(
    sharing: Sharing, queries: int, keys: int, head_size: int
) -> tuple[int, int]:
    """Multiply-adds of attention with sharing, and without: weights of essential heads, then the
    sum of values of every head."""
    each = queries * keys * head_size
    essential, heads = head_counts(sharing)
    return (essential + heads) * each, 2 * heads * each


def sharing_json(sharing: Sharing) -> str:
    """The file of section 4.1, a line per layer: `essential_heads` and `share_to`."""
    lines = [json.dumps(str(i)) + ": " + json.dumps({
        "essential_heads": list(layer),
        "share_to": {str(head): others for head, others in layer.items() if others}})
        for i, layer in sharing.items()]
    return "{" + ",\n ".join(lines) + "}"


def save_sharing(sharing: Sharing, path: Path) -> None:
    """Write `sharing_json` to a file."""
    path.write_text(sharing_json(sharing) + "\n")


def load_sharing(path: Path) -> Sharing:
    """Read what `save_sharing` wrote.

    Raises
    ------
    UserError
        The file cannot be read, or is of another form.
    """
    try:
        return {int(i): {int(head): [*map(int, layer["share_to"].get(str(head), []))]
                         for head in layer["essential_heads"]}
                for i, layer in parse_json(path.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise UserError(
            f'{path}: expected {{"layer": {{"essential_heads": [head, ...], "share_to": {{"head": '
            f"[head, ...]}}}}}} ({type(error).__name__}: {error}).") from error


@dataclass(frozen=True)
class Shared:
    """Of one layer.

    Attributes
    ----------
    essential : Tensor
        (essential heads,): their numbers.
    source : Tensor
        (heads,): place in `essential` of the head whose weights each head takes.
    """

    essential: Tensor
    source: Tensor


def share_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    given: Shared,
    recorder: ArgMaxRecorder | None = None,
    **kwargs,
) -> tuple[Tensor, None]:
    """Attention whose weights are computed for essential heads only.

    Shapes and recorder are those of `rmutils.attention.retrieval_capture`. A head looks where the
    head looks whose weights it takes.
    """
    group = query.shape[1] // key.shape[1]
    essential, keys = query[:, given.essential], key[:, given.essential // group]
    if recorder is not None:
        newest = newest_products(essential, keys, attention_mask, scaling).argmax(-1).flatten(1)
        recorder.record(module.layer_idx, newest[:, given.source])
    products = essential @ keys.transpose(2, 3) * scaling
    if attention_mask is None and query.shape[2] > 1:
        attention_mask = torch.ones(products.shape[2:], dtype=torch.bool,
                                    device=query.device).tril()
    if attention_mask is not None:
        products = products.masked_fill(~attention_mask, torch.finfo(products.dtype).min)
    weights = products.softmax(-1, dtype=torch.float32).to(value.dtype)
    output = torch.empty_like(query)
    for head, place in enumerate(given.source.tolist()):
        torch.matmul(weights[:, place], value[:, head // group], out=output[:, head])
    return output.transpose(1, 2), None


@contextmanager
def sharing_heads(model: PreTrainedModel, sharing: Sharing) -> Iterator[None]:
    """Switch a model to Share-Attention; on exit its own comes back, also after an error.

    Layers in which every head is essential keep the attention that they have.

    Raises
    ------
    UserError
        The sharing is that of a model with other layers or heads.
    """
    layers, count = model.config.num_hidden_layers, model.config.num_attention_heads
    shared = {}
    for i, layer in sharing.items():
        source = {head: place for place, (essential, others) in enumerate(layer.items())
                  for head in (essential, *others)}
        if i >= layers or sorted(source) != list(range(count)):
            raise UserError(f"layer {i} of the sharing is not one of this model, which has "
                            f"{layers} layers of {count} heads. Find it anew.")
        if len(layer) < count:
            shared[i] = Shared(torch.tensor(list(layer)),
                               torch.tensor([source[head] for head in range(count)]))
    with attached(model, NAME, shared):
        yield


recording_by_layer(NAME, share_attention)
