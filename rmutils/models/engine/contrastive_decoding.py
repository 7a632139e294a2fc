"""Decoding that contrasts a model with itself without some heads: DeCoRe (arXiv 2410.18860)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from torch import Tensor, nn
from torch.special import entr
from transformers import PreTrainedModel

from rmutils.models.head_blocks import before_each, projections

COPIES = 2
"""Rows of a batch for each text: one that the whole model writes, then one of the masked model."""


@dataclass(frozen=True)
class ContrastiveDecoding:
    """What the next token's distribution is contrasted with, and how strongly. log p = (1 + alpha)
    log p_base - alpha log p_masked, up to a constant, where alpha is the entropy of p_base: the
    less sure the model is, the more the masked model is subtracted."""

    heads: Collection[tuple[int, int]]  # those that the masked model lacks
    cap: float | None = None  # largest alpha
    # take the entropy as a share of that of a uniform distribution, 1 at most
    relative: bool = False

    def combine(self, logits: Tensor) -> Tensor:
        """Turn logits (2 x texts, ..., vocabulary) into log p (texts, ..., vocabulary), float32."""
        base, masked = (logits[i::COPIES].float().log_softmax(-1) for i in range(COPIES))
        alpha = entr(base.exp()).sum(-1, keepdim=True)
        if self.relative:
            alpha = alpha / math.log(base.shape[-1])
        if self.cap is not None:
            alpha = alpha.clamp(max=self.cap)
        return (1 + alpha) * base - alpha * masked

    @contextmanager
    def masking(self, model: PreTrainedModel) -> Iterator[None]:
        """Switch the heads off in every second row of a batch; on exit all is as before."""
        width = model.config.num_attention_heads
        chosen = {layer: [head for _, head in group]
                  for layer, group in groupby(sorted(self.heads), key=itemgetter(0))}

        def silence(layer: int, module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
            outputs = inputs[0].clone()  # (rows, tokens, heads x size)
            outputs[1::COPIES].unflatten(-1, (width, -1))[:, :, chosen[layer]] = 0
            return (outputs,)

        parts = projections(model)
        with before_each({layer: parts[layer] for layer in chosen}, silence):
            yield
