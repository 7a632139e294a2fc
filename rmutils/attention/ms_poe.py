"""Ms-PoE: each head reads positions on a scale of its own (Zhang and others, 2024)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel

from rmutils.attention import variants
from rmutils.attention.decoding import ArgMaxRecorder, newest_products, recording_by_layer
from rmutils.attention.rope import check_turns, inverse_frequencies, layers_of, turn
from rmutils.core.config import added
from rmutils.core.errors import UserError
from rmutils.models import LanguageModel
from rmutils.models.engine.implementations import attached

NAME = "ms_poe"
OUTLIER = 3
"""A key is looked at if it gets more than so many times the mean. 3 in the authors' code."""


@variants.VARIANTS.register("ms-poe")
class MsPoe(variants.AttentionVariant):
    """Ms-PoE: each head reads positions on a scale of its own."""

    kind: Literal["ms-poe"] = "ms-poe"
    label = "Ms-PoE"

    s_min: Annotated[float, Field(gt=0)] = 1.2
    """Lowest ratio. 1.2 in the authors' code; 1 in the summary that this book began with."""
    s_max: Annotated[float, Field(gt=0)] = 1.8
    """Highest ratio. 1.8 in the authors' code; 8 in that summary."""
    first_layer: Annotated[int, Field(ge=0)] = 2
    """The first layer that is changed. The authors' code leaves two out."""
    last_layer: int = -1
    """The last one; -1 is that of the model."""
    order: Literal["linear", "reversed", "position_aware", "reference"] = "linear"
    """Which head gets which ratio. `linear`: by number, from the lowest ratio to the highest.
    `reversed`: from the highest to the lowest, as in a line that the authors' code has turned off.
    `position_aware`: heads that look at more keys get lower ones (`looked_at`). `reference`: as in
    the authors' code, which takes the sorted order for each head's rank, stops one step short of
    the highest ratio, and, where query heads share a key head, puts their keys on the scale of the
    first of them."""

    spacing: Literal["even", "log", "two"] = added("even")
    """Ratios between the lowest and the highest. `even`: in equal steps, as in the summary's
    formula. `log`: in equal steps of the logarithm. `two`: none, so that half of the heads has the
    lowest and half the highest. The summary names both as alternatives."""
    spared: tuple[tuple[int, int], ...] = added(())
    """Heads (layer, head) that keep their positions: a ratio of 1."""

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if self.s_min > self.s_max:
            raise ValueError("s_min is above s_max")
        return self

    @property
    def by_prompt(self) -> bool:
        """Whether the order of the heads depends on the prompt."""
        return self.order in ("position_aware", "reference")

    @contextmanager
    def attached(self, lm: LanguageModel) -> Iterator[variants.AttachedModel]:
        if not self.by_prompt:
            with rescaled(lm.model, self):
                yield variants.AttachedModel(lm)
        else:
            yield variants.OneByOne(lm, view=partial(self._view, lm))

    @contextmanager
    def _view(self, lm: LanguageModel, prompt: Sequence[int]) -> Iterator[variants.PromptView]:
        with rescaled(lm.model, self, prompt):
            yield variants.PromptView(prompt)


@dataclass
class HeadScales:
    """Inputs of the attention of one layer."""

    config: MsPoe
    frequencies: Tensor  # (head size / 2,), as from `rmutils.attention.rope.inverse_frequencies`
    # (heads,); None until the layer has seen a prompt, where they depend on it
    ratios: Tensor | None
    shares: Tensor | None = None  # (heads,): `looked_at`, by which they were ordered


def ms_poe(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, *,
           scaling: float, given: HeadScales, recorder: ArgMaxRecorder | None = None,
           **kwargs: Any) -> tuple[Tensor, None]:
    """SDPA on queries, and keys whose positions are divided by each head's ratio."""
    group = query.shape[1] // key.shape[1]
    if given.ratios is None:
        given.shares = looked_at(query, key.repeat_interleave(group, dim=1), attention_mask,
                                 scaling, given.frequencies)
        given.ratios = spare(ratios_of(ranks(given.shares, given.config.order), given.config),
                             module.layer_idx, given.config)
    ratios = given.ratios.view(-1, group, 1)  # (key heads, heads that share each, 1)
    of_keys = ratios[:, :1].expand_as(ratios) if given.config.order == "reference" else ratios
    places = torch.arange(key.shape[2], device=key.device)
    further = places / of_keys - places
    places = places[-query.shape[2]:]
    query = turn(query, (places / ratios - places).flatten(0, 1), given.frequencies)
    if query.shape[2] == 1:
        weights = _products(query, key, further, given.frequencies) * scaling
        if attention_mask is not None:
            weights = weights.masked_fill(~attention_mask, -torch.inf)
        if recorder is not None:
            recorder.record(module.layer_idx, weights.argmax(-1).flatten(1)[..., None])
        output = weights.softmax(-1).to(value.dtype) @ value
        return output.view(len(query), 1, -1, value.shape[-1]), None
    key = turn(key[:, :, None], further, given.frequencies).flatten(1, 2)
    if recorder is not None:
        products = newest_products(query, key, attention_mask, scaling, recorder.rows)
        recorder.record(module.layer_idx, products.argmax(-1).flatten(1, 2))
    output = scaled_dot_product_attention(
        query, key, value.repeat_interleave(group, dim=1), attn_mask=attention_mask, scale=scaling,
        is_causal=attention_mask is None)
    return output.transpose(1, 2), None


def _products(query: Tensor, key: Tensor, further: Tensor, frequencies: Tensor) -> Tensor:
    """Products of one query per head with keys that are turned on, (batch, key heads, group, keys):
    as `turn`, on complex numbers, in one tensor: making many takes most of a step's time."""
    angles = further[..., None].float() * frequencies
    turned = (torch.complex(*key.float().chunk(2, dim=-1))[:, :, None]
              * torch.polar(torch.ones_like(angles), angles))
    pairs = torch.stack(query.float().chunk(2, dim=-1), dim=-1)  # real and imaginary side by side
    pairs = pairs.view(*turned.shape[:3], 1, -1)
    return (pairs @ torch.view_as_real(turned).flatten(-2).transpose(-1, -2))[..., 0, :]


def looked_at(query: Tensor, key: Tensor, attention_mask: Tensor | None, scaling: float,
              frequencies: Tensor) -> Tensor:
    """Share of the keys that each head looks at from the last query, without positions."""
    places = torch.arange(key.shape[2], device=key.device)
    last = turn(query[:, :, -1:], -places[-1:], frequencies).float()
    products = last @ turn(key, -places, frequencies).float().transpose(2, 3) * scaling
    if attention_mask is not None:
        products = products[..., attention_mask[0, 0, -1]]
    weights = products.softmax(-1)[0, :, 0]
    return (weights > OUTLIER * weights.mean(-1, keepdim=True)).float().mean(-1)


def ranks(shares: Tensor, order: str) -> Tensor:
    """Rank of each head by `looked_at`, the highest first, (heads,)."""
    by_share = shares.argsort(descending=True, stable=True)
    return by_share if order == "reference" else by_share.argsort()


def ratios_of(rank: Tensor, config: MsPoe) -> Tensor:
    """Ratio of each head from its rank among those of its layer, both (heads,)."""
    steps = len(rank) if config.order == "reference" else max(len(rank) - 1, 1)
    share = rank / steps
    if config.spacing == "log":
        return config.s_min * (config.s_max / config.s_min) ** share
    if config.spacing == "two":
        share = (share >= 0.5).float()
    return config.s_min + (config.s_max - config.s_min) * share


def spare(ratios: Tensor, layer: int, config: MsPoe) -> Tensor:
    """Set the ratios of a layer's spared heads to 1, in place."""
    ratios[[head for at, head in config.spared if at == layer]] = 1
    return ratios


@contextmanager
def rescaled(model: PreTrainedModel, config: MsPoe = MsPoe(),
             prompt: Sequence[int] = ()) -> Iterator[dict[int, HeadScales]]:
    """Switch a model to Ms-PoE; on exit its own attention comes back, also after an error."""
    layers = layers_of(model)
    last = len(layers) - 1 if config.last_layer < 0 else config.last_layer
    if not config.first_layer <= last < len(layers):
        raise UserError(f"there are no layers {config.first_layer} to {last}: the model has 0 to "
                        f"{len(layers) - 1}. Set first_layer and last_layer.")
    if config.by_prompt and not prompt:
        raise UserError(f"the order {config.order} of Ms-PoE depends on the prompt: give it.")
    check_turns(model, range(config.first_layer, last + 1))
    by_number = torch.arange(model.config.num_attention_heads, device=model.device)
    if config.order == "reversed":
        by_number = by_number.flip(0)
    scales = {i: HeadScales(
        config, inverse_frequencies(model, i),
        None if config.by_prompt else spare(ratios_of(by_number, config), i, config))
        for i in range(config.first_layer, last + 1)}
    with attached(model, NAME, scales):
        if prompt:
            with torch.inference_mode():
                model.base_model(torch.tensor([prompt], device=model.device), use_cache=False)
        yield scales


recording_by_layer(NAME, ms_poe)
