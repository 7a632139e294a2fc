"""Layers that have heads, and the output projection in which each head has a block of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from rmutils.core.errors import UserError
from rmutils.models.changes import register, using
from rmutils.models.products import Linear

MARKS = "head_marks"
HEADLESS = "linear_attn", "mamba", "conv"  # what a layer of a hybrid has in place of `self_attn`
_PROJECTIONS = "o_proj", "out_proj"
_CHECKED: WeakKeyDictionary[PreTrainedModel, bool] = WeakKeyDictionary()


def attentions(model: PreTrainedModel) -> dict[int, nn.Module]:
    """Return the attention of each layer that has heads, by the layer's number."""
    found = ((i, getattr(layer, "self_attn", None)) for i, layer in enumerate(
        getattr(model.base_model, "layers", ())))
    return {i: attention for i, attention in found if attention is not None}


def projections(model: PreTrainedModel) -> dict[int, nn.Linear]:
    """Return each layer's output projection; head h wrote what its h-th block of columns reads."""
    found = {i: _projection(attention) for i, attention in attentions(model).items()}
    for i, projection in found.items():
        if type(projection) not in (nn.Linear, Linear):
            kind = type(projection)
            raise UserError(
                f"the output projection of layer {i} is a {kind.__module__}.{kind.__qualname__} "
                f"and no plain matrix, so no columns of it are a head's. Merge an adapter first "
                f"(model.merge_and_unload(), rmutils merge); load quantized weights as whole ones.")
    if model not in _CHECKED:
        _check_blocks(model, found)
        _CHECKED[model] = True
    return found


@contextmanager
def before_each(modules: Mapping[int, nn.Module],
                hook: Callable[[int, Any, Any], Any]) -> Iterator[None]:
    """Call a hook with number, module and arguments before each of these modules reads."""
    with ExitStack() as hooks:
        for number, module in modules.items():
            hooks.callback(module.register_forward_pre_hook(partial(hook, number)).remove)
        yield


def keeps_states(model: PreTrainedModel) -> bool:
    """Return True for a hybrid whose layers keep a state: no text is read on from its middle."""
    return any(hasattr(layer, name) for layer in getattr(model.base_model, "layers", ())
               for name in HEADLESS)


def check_attention_alone(model: PreTrainedModel) -> None:
    """Check that nothing but attention carries text from token to token."""
    if keeps_states(model):
        raise UserError(
            f"{model.config.model_type} is a hybrid: some of its layers keep a state of the text, "
            f"and no keys and values. Its heads can be detected, by all scores but 'patching', and "
            f"masked, and it can answer; nothing else here is made for it.")


def lacking(model: PreTrainedModel) -> str:
    """Say what a model's layers lack for heads to be found in them; empty if nothing."""
    layers, found = getattr(model.base_model, "layers", ()), attentions(model)
    others = (layer for i, layer in enumerate(layers) if i not in found)
    if (not found or len(layers) != model.config.num_hidden_layers
            or None in map(_projection, found.values())
            or not all(any(hasattr(layer, name) for name in HEADLESS) for layer in others)):
        return "an attention with an output projection `o_proj` in every layer"
    return ""


def _projection(attention: nn.Module) -> nn.Module | None:
    return next((getattr(attention, name) for name in _PROJECTIONS if hasattr(attention, name)),
                None)


def _marks(module: nn.Module, query: Tensor, key: Tensor, value: Tensor,
           attention_mask: Tensor | None, **how: Any) -> tuple[Tensor, None]:
    """In the first row of a batch every head writes ones, in each other row one head alone."""
    rows, heads, queries, _ = query.shape
    every, own = torch.ones(1, heads), torch.eye(rows - 1, heads)
    marks = torch.cat([every, own]).to(value)[:, None, :, None]
    return marks.expand(rows, queries, heads, value.shape[3]).contiguous(), None


register(MARKS, _marks)


@torch.inference_mode()
def _check_blocks(model: PreTrainedModel, found: dict[int, nn.Linear]) -> None:
    """Let each head write by itself, and look at what comes to the output projections."""
    heads, seen = model.config.num_attention_heads, dict[int, Tensor]()

    def look(layer: int, module: nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
        seen[layer] = given[0][:, 0].float()
        return (given[0][:1].expand_as(given[0]),)  # so that all rows go on alike

    with before_each(found, look), using(model, MARKS):
        model.base_model(torch.zeros(1 + heads, 1, dtype=torch.long, device=model.device),
                         use_cache=False)
    for i in found:
        if i not in seen or not _are_blocks(seen[i], heads):
            raise UserError(
                f"{model.config.model_type}: in layer {i}, what the output projection reads is not "
                f"a block of columns for each head, so no head can be watched or masked by itself.")


def _are_blocks(written: Tensor, heads: int) -> bool:
    """Compare the rows of `_marks`: a head's block has what it has beside the others."""
    if written.shape[1] % heads:
        return False
    blocks = written.unflatten(1, (heads, -1))
    alone = torch.eye(heads, dtype=torch.bool, device=written.device)
    return bool((blocks[1:][~alone] == 0).all()) and torch.allclose(
        blocks[1:][alone], blocks[0], rtol=0.01)
