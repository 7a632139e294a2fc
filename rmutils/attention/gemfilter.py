"""GemFilter: an early layer chooses tokens of the prompt, and the model reads only those.

Shi and others (2024), arXiv 2409.17422, the baseline of Taniguchi and others (undated). We have the
published code, not the paper: what it does, slips included, is what is done here. The tokens are
chosen once; an answer cannot come back to the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import avg_pool1d

from rmutils.core.config import Config
from rmutils.core.errors import UserError
from rmutils.models import LanguageModel
from rmutils.models.engine.generation import generate
from rmutils.models.engine.implementations import attached, register_by_layer

NAME = "gemfilter"
POOL = 5
"""Width of the average over neighbouring tokens (`kernel_size=5` in the published code)."""


class GemFilterConfig(Config):
    """Which layer chooses, and how many tokens."""

    filter_layer: Annotated[int, Field(ge=0)] = 13
    """The published code's `select_layer_idx=13` for Llama 3.1 8B, which has 32 layers."""
    tokens: Annotated[int, Field(ge=1)] = 1024
    """How many (k); all if the prompt has no more. `--topk 1024` in the published example;
    Taniguchi et al., Table 2: "k=2049"."""


@dataclass
class Products:
    """Of one layer: the newest query times each key, summed over heads, (tokens,)."""

    products: Tensor | None = None


def gemfilter(
    module: nn.Module, query: Tensor, key: Tensor, *args, given: Products, **kwargs
) -> tuple[Tensor, None]:
    """Keep the products of the newest query. No query is answered: nothing is read behind the layer
    that chooses.

    Shapes are those of `rmutils.models.engine.implementations.grouped_query`, with batch 1.
    """
    newest = query[0, :, -1].float().view(key.shape[1], -1, query.shape[-1])
    given.products = (newest @ key[0].float().transpose(1, 2)).sum((0, 1))
    return torch.zeros_like(query).transpose(1, 2), None


def chosen_tokens(products: Tensor, count: int) -> Tensor:
    """Tokens with the highest products, averaged over neighbours, in their order.

    The published code averages as if zeros stood before the first token and behind the last one,
    and keeps the newest token only if it is among the highest.
    """
    pooled = avg_pool1d(products[None], POOL, stride=1, padding=POOL // 2)[0]
    return pooled.topk(min(count, len(pooled))).indices.sort().values


@torch.inference_mode()
def choose(lm: LanguageModel, prompt: Sequence[int], config: GemFilterConfig) -> list[int]:
    """The tokens of a prompt that one layer chooses, by their places.

    Layers up to that one read the prompt, once and without a cache.

    Raises
    ------
    UserError
        There is no such layer.
    """
    inner, kept = lm.model.base_model, Products()
    layers = inner.layers
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


def answer_filtered(
    lm: LanguageModel, prompt: Sequence[int], config: GemFilterConfig, *, max_new_tokens: int
) -> tuple[list[int], list[int]]:
    """The most likely answer to the chosen tokens, read as if they were the prompt; and their
    places in it."""
    places = choose(lm, prompt, config)
    said, = generate(lm, [[prompt[i] for i in places]], max_new_tokens=max_new_tokens)
    return said, places


register_by_layer(NAME, gemfilter)
