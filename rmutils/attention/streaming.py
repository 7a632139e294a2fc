"""Streaming attention: every token sees the first few tokens and the most recent ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from rmutils.attention.decoding import recording_by_layer, retrieval_capture
from rmutils.attention.variants import VARIANTS, AttentionVariant, OneByOne, PromptView
from rmutils.core.validation import Count
from rmutils.models import LanguageModel
from rmutils.models.engine.implementations import attached

NAME = "streaming"


@VARIANTS.register("streaming")
class Streaming(AttentionVariant):
    """Streaming attention: the first few tokens and the most recent ones are seen."""

    kind: Literal["streaming"] = "streaming"
    label = "streaming"

    first: Annotated[int, Field(ge=0)] = 4
    """Tokens at the start (sinks). Xiao et al.: four are enough."""
    recent: Count = 124
    """Tokens before and with the one that looks."""

    @contextmanager
    def attached(self, lm: LanguageModel) -> Iterator[OneByOne]:
        with attached(lm.model, NAME, dict.fromkeys(range(lm.shape[0]), self)):
            yield OneByOne(lm, view=self._view)  # with padding the first tokens stand elsewhere

    @contextmanager
    def _view(self, prompt: Sequence[int]) -> Iterator[PromptView]:
        yield PromptView(prompt, min(1.0, (self.first + self.recent) / len(prompt)))


def streaming(module: nn.Module, query: Tensor, key: Tensor, value: Tensor,
              attention_mask: Tensor | None, *, scaling: float, given: Streaming,
              **kwargs: Any) -> tuple[Tensor, None]:
    """Attention to the first and the most recent keys; batch 1."""
    keys = torch.arange(key.shape[2], device=key.device)
    queries = keys[-query.shape[2]:, None]
    seen = (keys <= queries) & ((keys < given.first) | (queries - keys < given.recent))
    mask = seen[None, None] if attention_mask is None else attention_mask & seen
    return retrieval_capture(module, query, key, value, mask, scaling=scaling, **kwargs)


recording_by_layer(NAME, streaming)
