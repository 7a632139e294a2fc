"""What answers prompts and reads texts: a model whose attention is switched to a variant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from rmutils.attention.gemfilter import GemFilterConfig, answer_filtered, choose
from rmutils.attention.ms_poe import rescaled
from rmutils.attention.select_attention import SelectConfig, answer_selecting, selecting
from rmutils.evaluation.degeneration import next_token_logits
from rmutils.evaluation.variants.kinds import MsPoe
from rmutils.models import LanguageModel
from rmutils.models.generation import generate

Done = Callable[[int, list[int], float], None]
"""Is told of each answer: its number, its tokens, and `kept`."""


@dataclass(frozen=True)
class Subject:
    """A model whose attention stays as it is while it answers; answers are written side by side.

    Attributes
    ----------
    lm : LanguageModel
    kept : float
        Share of the attention that is computed: of heads with weights of their own
        (Share-Attention), of tokens that later layers see (Select-Attention), or of the prompt's
        tokens that the model reads (GemFilter), else 1.
    """

    lm: LanguageModel
    kept: float = 1.0

    def answer(self, prompts: Sequence[Sequence[int]], *, max_new_tokens: int,
               done: Done) -> None:
        """Answer greedily, and tell `done` of each answer when it is there."""
        generate(self.lm, prompts, max_new_tokens=max_new_tokens,
                 done=lambda index, tokens: done(index, tokens, self.kept))

    def foresee(self, text: Sequence[int], known: int) -> tuple[Tensor, float]:
        """What is expected of each token of a text behind the known ones.

        Returns
        -------
        Tensor, float
            (tokens - known, vocabulary) logits, and `kept`.
        """
        return next_token_logits(self.lm, text)[known - 1 : -1], self.kept


@dataclass(frozen=True)
class ByPrompt(Subject):
    """Ms-PoE whose heads are ordered anew by each prompt, or by the known beginning of a text."""

    variant: MsPoe = MsPoe()

    def answer(self, prompts: Sequence[Sequence[int]], *, max_new_tokens: int,
               done: Done) -> None:
        for i, prompt in enumerate(prompts):
            with rescaled(self.lm.model, self.variant, prompt):
                tokens, = generate(self.lm, [prompt], max_new_tokens=max_new_tokens)
            done(i, tokens, self.kept)

    def foresee(self, text: Sequence[int], known: int) -> tuple[Tensor, float]:
        with rescaled(self.lm.model, self.variant, text[:known]):
            return super().foresee(text, known)


@dataclass(frozen=True)
class Selecting(Subject):
    """Select-Attention, which reads a prompt whole and what follows token by token."""

    variant: SelectConfig = SelectConfig()

    def answer(self, prompts: Sequence[Sequence[int]], *, max_new_tokens: int,
               done: Done) -> None:
        for i, prompt in enumerate(prompts):
            tokens, selection, _ = answer_selecting(self.lm, prompt, self.variant,
                                                    max_new_tokens=max_new_tokens)
            done(i, tokens, _share(selection.chosen, len(prompt)))

    @torch.inference_mode()
    def foresee(self, text: Sequence[int], known: int) -> tuple[Tensor, float]:
        cache, rows = DynamicCache(), []
        parts = [text[:known], *([token] for token in text[known:-1])]
        with selecting(self.lm.model, self.variant) as selection:
            for part in parts:
                rows.append(self.lm.model(torch.tensor([part], device=self.lm.model.device),
                                          past_key_values=cache, use_cache=True,
                                          logits_to_keep=1).logits[0, -1])
        return torch.stack(rows).float().cpu(), _share(selection.chosen, known)


@dataclass(frozen=True)
class Filtering(Subject):
    """GemFilter, which chooses among the tokens of a prompt, or of the known beginning of a text.
    """

    variant: GemFilterConfig = GemFilterConfig()

    def answer(self, prompts: Sequence[Sequence[int]], *, max_new_tokens: int,
               done: Done) -> None:
        for i, prompt in enumerate(prompts):
            tokens, places = answer_filtered(self.lm, prompt, self.variant,
                                             max_new_tokens=max_new_tokens)
            done(i, tokens, len(places) / len(prompt))

    def foresee(self, text: Sequence[int], known: int) -> tuple[Tensor, float]:
        places = choose(self.lm, text[:known], self.variant)
        shorter = [*(text[i] for i in places), *text[known:]]
        return next_token_logits(self.lm, shorter)[len(places) - 1 : -1], len(places) / known


def _share(chosen: Sequence[Tensor], prompt: int) -> float:
    """Mean share of the tokens that later layers saw in the steps behind a prompt of that length;
    NaN if there was no such step."""
    shares = [len(places) / (prompt + i) for i, places in enumerate(chosen)]
    return float(np.mean(shares[1:])) if len(shares) > 1 else float("nan")
