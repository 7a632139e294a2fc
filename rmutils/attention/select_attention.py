"""Select-Attention: one layer chooses the tokens that all later layers see, anew at each step.

Taniguchi and others (undated), section 4.2. Later layers keep no keys and values: those of the
chosen tokens are made anew at each step. For that the hidden states behind the filter layer are
kept here; the paper does not mention them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from rmutils.attention.capture import (
    ArgMaxRecorder,
    newest_products,
    recording_by_layer,
    retrieval_capture,
)
from rmutils.attention.rope import layers_of, position_embeddings
from rmutils.core.config import Config
from rmutils.core.errors import UserError
from rmutils.models import LanguageModel
from rmutils.models.engine.implementations import attached

NAME = "select_attention"


class SelectConfig(Config):
    """Which layer chooses, and how many tokens."""

    filter_layer: Annotated[int, Field(ge=0)] = 15
    """Section 4.2: layer 15 "is the most suitable" for Llama 3 with 32 layers."""
    p: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Tokens are taken, the highest scores first, until they have this share of all. 0.91 to 0.99
    in section 5."""
    at_prefill: bool = False
    """Whether the prompt's tokens are chosen, too, when it is read (Table 3 has both)."""


@dataclass
class Selection:
    """What is kept between steps.

    Attributes
    ----------
    config : SelectConfig
    hidden : Tensor or None
        (1, tokens, hidden size): behind the filter layer.
    scores : Tensor or None
        (tokens,): attention of the newest token in the filter layer, mean over its heads.
    chosen : list of Tensor
        Of each pass: indices of the tokens that later layers saw.
    looked : list of Tensor
        Of each pass, if that is recorded: index of the token that each head looked at most from the
        newest one, (layers, heads).
    """

    config: SelectConfig
    hidden: Tensor | None = None
    scores: Tensor | None = None
    chosen: list[Tensor] = field(default_factory=list)
    looked: list[Tensor] = field(default_factory=list)


def top_p(scores: Tensor, p: float) -> Tensor:
    """Fewest tokens whose scores add up to a share p of all, in their order, and the newest."""
    highest, order = scores.sort(descending=True, stable=True)
    before = highest.cumsum(0) - highest
    kept = order[before < p * scores.sum()] if p < 1 else order
    newest = torch.tensor([len(scores) - 1], device=scores.device)
    return torch.cat([kept, newest]).unique()


def select_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    given: Selection,
    **kwargs,
) -> tuple[Tensor, None]:
    """SDPA of the filter layer, which keeps the scores of the newest token.

    Shapes are those of `rmutils.attention.capture`, with batch 1.
    """
    products = newest_products(query, key, attention_mask, scaling)
    given.scores = products[0].softmax(-1).mean((0, 1))
    return retrieval_capture(
        module, query, key, value, attention_mask, scaling=scaling, **kwargs)


@contextmanager
def selecting(model: PreTrainedModel, config: SelectConfig) -> Iterator[Selection]:
    """Switch a model to Select-Attention, for one text; on exit its own attention comes back.

    Passes are to be those of one prompt and its answer: the prompt whole, then token by token, with
    a cache, batch 1.

    Raises
    ------
    UserError
        There is no layer behind the filter layer.
    """
    layers = layers_of(model)
    first = config.filter_layer + 1
    if first >= len(layers):
        raise UserError(f"no layer follows filter layer {config.filter_layer}: the model has 0 to "
                        f"{len(layers) - 1}. Set filter_layer.")
    selection = Selection(config)

    def choose(layer: nn.Module, args: tuple[Tensor], kwargs: dict) -> tuple[tuple, dict]:
        (new,) = args
        kept = selection.hidden
        selection.hidden = new if kept is None else torch.cat([kept, new], dim=1)
        total = selection.hidden.shape[1]
        whole = new.shape[1] > 1 and not config.at_prefill
        selection.chosen.append(torch.arange(total, device=new.device) if whole else
                                top_p(selection.scores, config.p))
        return later(layer, (selection.hidden[:, selection.chosen[-1]],), kwargs)

    def later(layer: nn.Module, args: tuple[Tensor], kwargs: dict) -> tuple[tuple, dict]:
        places, number = selection.chosen[-1], layer.self_attn.layer_idx
        seen = places[:, None] >= places
        if window := getattr(layer.self_attn, "sliding_window", None):
            seen &= places[:, None] - places < window
        if (recorder := kwargs.get("recorder")) is not None:
            kwargs = kwargs | {"recorder": recorder.among(places)}
        return args, kwargs | {
            "attention_mask": seen[None, None], "past_key_values": None,
            "position_ids": places[None],
            "position_embeddings": position_embeddings(model, number, args[0], places[None])}

    hooks = [layer.register_forward_pre_hook(later if i else choose, with_kwargs=True)
             for i, layer in enumerate(layers[first:])]
    try:
        with attached(model, NAME, {config.filter_layer: selection}):
            yield selection
    finally:
        for hook in hooks:
            hook.remove()


@torch.inference_mode()
def answer_selecting(
    lm: LanguageModel, prompt: Sequence[int], config: SelectConfig, *, max_new_tokens: int,
    stop_ids: Collection[int] | None = None, recorder: ArgMaxRecorder | None = None,
) -> tuple[list[int], Selection, DynamicCache]:
    """The most likely answer to a prompt; what was chosen; and the cache, for its size.

    Parameters
    ----------
    stop_ids : collection of int, optional
        Tokens that end the answer; default: the model's.
    recorder : ArgMaxRecorder, optional
        Where to keep what is told in `Selection.looked`; the model attends as usual without.
    """
    cache, ids, said = DynamicCache(), list(prompt), []
    stop_ids = lm.stop_ids if stop_ids is None else stop_ids
    with selecting(lm.model, config) as selection:
        while len(said) < max_new_tokens:
            logits = lm.model(torch.tensor([ids], device=lm.model.device), past_key_values=cache,
                              use_cache=True, logits_to_keep=1, recorder=recorder).logits
            if recorder is not None:
                selection.looked.append(recorder.take()[0])
            ids = [int(logits[0, -1].argmax())]
            if ids[0] in stop_ids:
                break
            said += ids
    return said, selection, cache


def kept_bytes(selection: Selection, cache: DynamicCache) -> tuple[int, int]:
    """Bytes of keys and values that are kept, and of hidden states, which take the place of the
    later layers' keys and values and which the paper does not count."""
    def size(tensor: Tensor) -> int:
        return tensor.numel() * tensor.element_size()

    return (sum(size(layer.keys) + size(layer.values) for layer in cache.layers
                if layer.is_initialized), size(selection.hidden))


recording_by_layer(NAME, select_attention)
