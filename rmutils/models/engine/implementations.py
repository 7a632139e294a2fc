"""One model, several implementations of its attention; and those that read and write fastest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from rmutils.core.errors import UserError
from rmutils.models.changes import changed, register, using
from rmutils.models.families import needs_eager
from rmutils.models.head_blocks import attentions, check_attention_alone

GROUPED, KEYS_ONLY = "grouped_query", "keys_only"


def register_by_layer(
    name: str, attention: Callable[..., tuple[Tensor, None]], *,
    otherwise: Callable[..., tuple[Tensor, None]] = sdpa_attention_forward,
) -> None:
    """`register` an attention for the layers that `attached` gives something to."""
    def of_layer(module, query, key, value, attention_mask, **kwargs):
        given = getattr(module, name, None)
        if given is None:
            return otherwise(module, query, key, value, attention_mask, **kwargs)
        return attention(module, query, key, value, attention_mask, given=given, **kwargs)

    register(name, of_layer)


@contextmanager
def attached(model: PreTrainedModel, name: str, given: Mapping[int, object]) -> Iterator[None]:
    """Switch a model to an attention of `register_by_layer`; on exit its own comes back."""
    if needs_eager(model):
        raise UserError(f"the attention of {model.config.model_type} models caps its scores or has "
                        "sinks, which this variant would drop.")
    modules = attentions(model)
    if not given.keys() <= modules.keys():
        check_attention_alone(model)
    modules = {i: modules[i] for i in given}
    try:
        for i, module in modules.items():
            setattr(module, name, given[i])
        with using(model, name), changed(model, name, sorted(given)):
            yield
    finally:
        for module in modules.values():
            module.__dict__.pop(name, None)


def grouped_query(module: nn.Module, query: Tensor, key: Tensor, value: Tensor,
                  attention_mask: Tensor | None, *, scaling: float,
                  **kwargs) -> tuple[Tensor, None]:
    """SDPA in which a step of one token reads each key once, not once for each query head."""
    batch, heads, queries, size = query.shape
    if queries > 1:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    grouped = query.reshape(batch, key.shape[1], -1, size)
    output = scaled_dot_product_attention(
        grouped, key, value, attn_mask=attention_mask, scale=scaling)
    return output.reshape(batch, 1, heads, -1), None


@contextmanager
def writing(model: PreTrainedModel) -> Iterator[None]:
    """`grouped_query` in place of SDPA; a model that attends in another way stays as it is."""
    own = model.config._attn_implementation
    with using(model, GROUPED if own == "sdpa" else own):
        yield


class _Stored(Exception):  # noqa: N818, not an error
    """The last layer has stored its keys and values."""


@contextmanager
def reading(model: PreTrainedModel) -> Iterator[None]:
    """For a pass of which only keys and values are wanted: it ends where the last are stored."""
    if model.config._attn_implementation != "sdpa":
        yield
        return
    last = model.config.num_hidden_layers - 1
    with suppress(_Stored), attached(model, KEYS_ONLY, {last: True}):
        yield


def in_two(module: nn.Module, query: Tensor, key: Tensor, value: Tensor,
           attention_mask: Tensor | None, *, scaling: float, **kwargs) -> tuple[Tensor, None]:
    """SDPA for tokens that come after others, which computes nothing that the mask hides."""
    batch, heads, queries, size = query.shape
    before = key.shape[2] - queries
    # No row of a causal mask, with a window or padding, hides more old keys than the last one.
    if (attention_mask is None or not before or query.device.type != "cpu"
            or value.shape[3] != size or not attention_mask[:, :, -1].all()):
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    # What SDPA calls on a CPU. It alone also returns the logarithm of the sum of exponentials.
    attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    old, old_sum = attend(
        query.reshape(batch, key.shape[1], -1, size), key[:, :, :before], value[:, :, :before],
        scale=scaling)
    new, new_sum = attend(query, *(
        part[:, :, before:].repeat_interleave(heads // key.shape[1], dim=1)
        for part in (key, value)), is_causal=True, scale=scaling)
    share = (old_sum.reshape(new_sum.shape) - new_sum).sigmoid()[..., None].to(new.dtype)
    return new.lerp(old.reshape(new.shape), share).transpose(1, 2), None


def _keys_only(*args, **kwargs) -> None:
    raise _Stored


register(GROUPED, grouped_query)
register_by_layer(KEYS_ONLY, _keys_only, otherwise=in_two)
