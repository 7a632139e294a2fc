"""GemFilter (arXiv 2409.17422): an early layer chooses the tokens that the model reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import avg_pool1d

from rmutils.attention.rope import layers_of
from rmutils.attention.variants import VARIANTS, AttentionVariant, OneByOne, PromptView
from rmutils.core.errors import UserError
from rmutils.core.validation import Count
from rmutils.models import LanguageModel
from rmutils.models.engine.implementations import attached, register_by_layer

NAME = "gemfilter"
POOL = 5  # width of the average over neighbouring tokens (`kernel_size=5` in the published code)


@VARIANTS.register("gemfilter")
class GemFilter(AttentionVariant):
    """GemFilter: one layer chooses the tokens of the prompt that the model then reads."""

    kind: Literal["gemfilter"] = "gemfilter"
    label = "GemFilter"

    filter_layer: Annotated[int, Field(ge=0)] = 13
    """The published code's `select_layer_idx=13` for Llama 3.1 8B, which has 32 layers."""
    tokens: Count = 1024
    """How many (k); all if the prompt has no more. `--topk 1024` in the published example;
    Taniguchi et al., Table 2: "k=2049"."""

    @contextmanager
    def attached(self, lm: LanguageModel) -> Iterator[OneByOne]:
        yield OneByOne(lm, view=partial(self._view, lm))

    @contextmanager
    def _view(self, lm: LanguageModel, prompt: Sequence[int]) -> Iterator[PromptView]:
        places = choose(lm, prompt, self)
        yield PromptView([prompt[i] for i in places], len(places) / len(prompt), places)

    def by_layer(self, layers: int) -> dict[int, AttentionVariant]:
        return {i: self.model_copy(update={"filter_layer": i}) for i in range(layers)}


@dataclass
class Products:
    """The newest query of a layer times each key, summed over heads, (tokens,)."""

    products: Tensor = field(default_factory=lambda: torch.empty(0))


def gemfilter(module: nn.Module, query: Tensor, key: Tensor, *args: Any, given: Products,
              **kwargs: Any) -> tuple[Tensor, None]:
    """Keep the products of the newest query; nothing is read behind this layer. Batch 1."""
    newest = query[0, :, -1].float().view(key.shape[1], -1, query.shape[-1])
    given.products = (newest @ key[0].float().transpose(1, 2)).sum((0, 1))
    return torch.zeros_like(query).transpose(1, 2), None


def chosen_tokens(products: Tensor, count: int) -> Tensor:
    """Tokens with the highest products, averaged over neighbours, in their order."""
    pooled = avg_pool1d(products[None], POOL, stride=1, padding=POOL // 2)[0]
    return pooled.topk(min(count, len(pooled))).indices.sort().values


@torch.inference_mode()
def choose(lm: LanguageModel, prompt: Sequence[int], config: GemFilter) -> list[int]:
    """Return the places of the tokens that one layer chooses in a prompt. Layers up to that one
    read it, once and without a cache."""
    inner, kept = lm.model.base_model, Products()
    layers = layers_of(lm.model)
    if config.filter_layer >= len(layers):
        raise UserError(f"there is no layer {config.filter_layer}: the model has 0 to "
                        f"{len(layers) - 1}. Set filter_layer.")
    try:
        inner.layers = layers[: config.filter_layer + 1]
        with attached(lm.model, NAME, {config.filter_layer: kept}):
            inner(torch.tensor([prompt], device=lm.model.device), use_cache=False)
    finally:
        inner.layers = layers
    return chosen_tokens(kept.products, config.tokens).tolist()


register_by_layer(NAME, gemfilter)
