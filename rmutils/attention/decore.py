"""DeCoRe (arXiv 2410.18860): tokens chosen by contrast with the model without retrieval heads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from transformers import DynamicCache

from rmutils.attention.decoding import Answer, capturing, decode
from rmutils.attention.variants import VARIANTS, AttachedModel, AttentionVariant, Done
from rmutils.core.errors import UserError
from rmutils.core.validation import FrozenHeads
from rmutils.models import LanguageModel
from rmutils.models.engine.caches import Trunk, stack_caches
from rmutils.models.engine.contrastive_decoding import COPIES, ContrastiveDecoding
from rmutils.models.engine.generation import generate


@VARIANTS.register("decore")
class DeCoRe(AttentionVariant):
    """DeCoRe: tokens are chosen from the contrast with the model without some heads."""

    kind: Literal["decore"] = "decore"
    label = "DeCoRe"

    heads: FrozenHeads = ()
    """Heads (layer, head) that the masked model lacks: the retrieval heads, as from
    `HeadScores.select`. It needs one at least."""
    cap: Annotated[float, Field(gt=0)] | None = None
    """Largest weight of the contrast (alpha). None: it has no limit, as in the paper."""
    relative: bool = False
    """Divide alpha, an entropy in nats, by the logarithm of the number of tokens."""

    @contextmanager
    def attached(self, lm: LanguageModel) -> Iterator[AttachedModel]:
        if not lm.checked_heads(self.heads):
            raise UserError("DeCoRe needs to know which heads the masked model lacks: set heads, "
                            "to the retrieval heads as from `rmutils detect`.")
        yield ContrastedModel(lm, contrast=ContrastiveDecoding(self.heads, self.cap, self.relative))


@dataclass(frozen=True)
class ContrastedModel(AttachedModel):
    """Reads prompts as the whole model; what follows is read by the masked model, too."""

    contrast: ContrastiveDecoding = ContrastiveDecoding(())

    def answer(self, prompts: Sequence[Sequence[int]], *, max_new_tokens: int, done: Done,
               stop_ids: Collection[int] | None = None) -> None:
        generate(self.lm, prompts, max_new_tokens=max_new_tokens, stop_ids=stop_ids,
                 contrast=self.contrast,
                 done=lambda index, tokens: done(index, tokens, self.kept))

    @torch.inference_mode()
    def step(self, ids: Sequence[int], cache: DynamicCache) -> Tensor:
        layer: Any = cache.layers[0] if cache.layers else None
        if cache.get_seq_length() and len(layer.keys) < COPIES:
            cache.batch_repeat_interleave(COPIES)
        with self.contrast.masking(self.lm.model):
            return self.contrast.combine(self.lm.model(
                torch.tensor([ids] * COPIES, device=self.lm.model.device), past_key_values=cache,
                use_cache=True).logits)[0]

    def next_logits(self, text: Sequence[int], known: int) -> tuple[Tensor, float]:
        caches = Trunk(self.lm.model, []).read_all([text[:known]], COPIES)
        cache = stack_caches(caches, room=len(text) - known)
        return self.step(text[known - 1 : -1], cache).cpu(), self.kept

    def watch(self, prompt: Sequence[int], *, max_new_tokens: int,
              stop_ids: Collection[int]) -> Answer:
        """The heads are those of the whole model, while it reads the contrasted answer."""
        said = generate(self.lm, [prompt], max_new_tokens=max_new_tokens, stop_ids=stop_ids,
                        contrast=self.contrast)
        with capturing(self.lm.model) as recorder:
            answer, = decode(self.lm.model, recorder, [prompt],
                             [Trunk(self.lm.model, prompt[:-1]).cache], forced=said)
        return answer
