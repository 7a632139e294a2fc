"""Caches that keep a part of the prompt, chosen by attention: H2O and SnapKV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.functional import avg_pool1d, scaled_dot_product_attention

from rmutils.attention.decoding import ArgMaxRecorder, newest_products, recording_by_layer
from rmutils.attention.variants import VARIANTS, AttentionVariant, OneByOne, PromptView
from rmutils.core.validation import Count
from rmutils.models import LanguageModel
from rmutils.models.engine.implementations import attached

NAME = "evicting"
POOL = 5  # width of SnapKV's average over neighbouring tokens, as in GemFilter


class Evicting(AttentionVariant):
    """A cache of which each key head keeps some tokens of the prompt."""

    tokens: Annotated[int, Field(ge=2)] = 128
    """How many are kept; all if the prompt has no more."""

    def choose(self, weights: Tensor) -> Tensor:
        """Mark the tokens that are kept, (key heads, tokens), by the prompt's attention."""
        raise NotImplementedError

    @contextmanager
    def attached(self, lm: LanguageModel) -> Iterator[OneByOne]:
        yield OneByOne(lm, view=partial(self._view, lm))

    @contextmanager
    def _view(self, lm: LanguageModel, prompt: Sequence[int]) -> Iterator[PromptView]:
        if self.tokens >= len(prompt):
            yield PromptView(prompt)
            return
        observed: list[list[Tensor]] = [[] for _ in range(lm.shape[0])]
        with attached(lm.model, NAME, dict(enumerate(observed))), torch.inference_mode():
            lm.model.base_model(torch.tensor([prompt], device=lm.model.device), use_cache=False)
        kept = {i: self.choose(weights) for i, (weights,) in enumerate(observed)}
        with attached(lm.model, NAME, kept):
            yield PromptView(prompt, self.tokens / len(prompt))


@VARIANTS.register("h2o")
class H2O(Evicting):
    """H2O: the tokens that all queries of the prompt together looked at most, and recent ones."""

    kind: Literal["h2o"] = "h2o"
    label = "H2O"

    def choose(self, weights: Tensor) -> Tensor:
        """Half of the tokens are the most recent ones (Zhang and others: equal parts)."""
        recent = self.tokens // 2
        votes = weights.sum(1)[:, : weights.shape[2] - recent]
        return _highest(votes, recent, self.tokens - recent)


@VARIANTS.register("snapkv")
class SnapKV(Evicting):
    """SnapKV: the tokens that the end of the prompt looked at most, and that end."""

    kind: Literal["snapkv"] = "snapkv"
    label = "SnapKV"

    window: Count = 16
    """Tokens at the end of the prompt whose attention decides, and which are kept. Ours, for
    prompts of a few hundred tokens."""

    @model_validator(mode="after")
    def _leaves_some_to_choose(self) -> SnapKV:
        if self.window >= self.tokens:
            raise ValueError(f"snapkv keeps {self.tokens} tokens, and its window of {self.window} "
                             "leaves none to choose: set window below tokens")
        return self

    def choose(self, weights: Tensor) -> Tensor:
        """Scores are averaged over neighbours, so that what stands beside a token is kept, too."""
        votes = weights[:, -self.window:].sum(1)[:, : weights.shape[2] - self.window]
        pooled = avg_pool1d(votes[:, None], POOL, stride=1, padding=POOL // 2)[:, 0]
        return _highest(pooled, self.window, self.tokens - self.window)


def _highest(votes: Tensor, recent: int, count: int) -> Tensor:
    """Mark the `count` highest votes, (key heads, tokens), and `recent` tokens behind them."""
    kept = torch.zeros_like(votes, dtype=torch.bool)
    kept.scatter_(1, votes.topk(count).indices, True)
    return torch.cat([kept, kept.new_ones(len(votes), recent)], 1)


def evicting(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
             *, scaling: float, given: Tensor | list[Tensor],
             recorder: ArgMaxRecorder | None = None, **kwargs: Any) -> tuple[Tensor, None]:
    """SDPA in which queries behind the prompt see only what each key head has kept; batch 1.
    A list in place of that takes the attention to the prompt, (key heads, tokens, tokens)."""
    key_heads, keys, group = key.shape[1], key.shape[2], query.shape[1] // key.shape[1]
    places = torch.arange(keys, device=key.device)
    newest = places[-query.shape[2]:, None]
    seen = (places <= newest).expand(key_heads, -1, -1)
    if attention_mask is not None:
        seen = seen & attention_mask[0]
    if isinstance(given, list):
        products = newest_products(query, key, seen[None], scaling, query.shape[2])
        given.append(products.softmax(-1)[0].mean(1))
    else:
        evicted = torch.zeros(key_heads, 1, keys, dtype=torch.bool, device=key.device)
        evicted[:, 0, : given.shape[1]] = ~given[:, :keys]
        seen = seen & ~(evicted & (newest >= given.shape[1]))
        if recorder is not None:
            products = newest_products(query, key, seen[None], scaling, recorder.rows)
            recorder.record(module.layer_idx, products.argmax(-1).flatten(1, 2))
    output = scaled_dot_product_attention(
        query, key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1),
        attn_mask=seen.repeat_interleave(group, dim=0)[None], scale=scaling)
    return output.transpose(1, 2).contiguous(), None


recording_by_layer(NAME, evicting)
