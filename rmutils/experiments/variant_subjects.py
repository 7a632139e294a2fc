"""Switch a model to a variant of its attention, for a while.

Where each head looks under a variant, also where that takes one text at a time.

What answers prompts and reads texts: a model whose attention is switched to a variant.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from rmutils.attention import share_attention
from rmutils.attention.capture import ArgMaxRecorder, capturing
from rmutils.attention.decoding import Answer, decode
from rmutils.attention.gemfilter import GemFilterConfig, answer_filtered, choose
from rmutils.attention.ms_poe import MsPoeConfig, rescaled
from rmutils.attention.rope import extend
from rmutils.attention.select_attention import SelectConfig, answer_selecting, selecting
from rmutils.attention.share_attention import Sharing, retention, sharing_heads
from rmutils.attention.variants import Extended, GemFilter, MsPoe, Retain, Select, Share, Variant
from rmutils.core.errors import UserError
from rmutils.core.progress import progress_bar
from rmutils.evaluation.likelihoods import next_token_logits
from rmutils.experiments.variant_questions import DocumentsConfig, document_questions
from rmutils.heads.answering import Watch
from rmutils.longcontext.extension import ExtensionConfig, fine_tune, instances, trained_window
from rmutils.models import LanguageModel
from rmutils.models.engine.caches import Trunk
from rmutils.models.engine.generation import generate
from rmutils.models.teaching import RECIPES

CALIBRATION = -1
"""Seed of the questions by whose attention maps heads share; nobody is asked those of negative
seeds."""


@contextmanager
def under(lm: LanguageModel, variant: Variant) -> Iterator[Subject]:
    """Switch a model to a variant; on exit its own attention comes back, also after an error.

    Raises
    ------
    UserError
        The variant does not fit the model.
    """
    match variant:
        case MsPoe(order="linear"):
            with rescaled(lm.model, variant):
                yield Subject(lm)
        case MsPoe():
            yield ByPrompt(lm, variant=variant)
        case Share() | Retain():
            sharing = sharing_of(lm, variant)
            with sharing_heads(lm.model, sharing):
                yield Subject(lm, retention(sharing))
        case Select():
            yield Selecting(lm, variant=variant)
        case GemFilter():
            yield Filtering(lm, variant=variant)
        case Extended():
            with _extended(lm, variant):
                yield Subject(lm)
        case _:
            yield Subject(lm)


def sharing_of(lm: LanguageModel, variant: Share | Retain) -> Sharing:
    """Which heads of a model share under a variant."""
    prompts = calibration(lm, variant)
    if isinstance(variant, Retain):
        apart = share_attention.mean_distances(lm.model, prompts)
        return share_attention.sharing_at(apart, share_attention.threshold_for(apart, variant.kept))
    sharing = share_attention.find_sharing(lm.model, prompts, variant.threshold)
    return sharing if variant.at_random is None else share_attention.shuffled(
        sharing, variant.at_random)


def calibration(lm: LanguageModel, variant: Share | Retain) -> list[Sequence[int]]:
    """The prompts whose attention maps say which heads are alike."""
    asked = DocumentsConfig(lengths=(variant.tokens,), places=(0.5,), questions=variant.prompts,
                            seed=CALIBRATION)
    return [question.prompt for question in document_questions(lm, asked).questions]


@contextmanager
def _extended(lm: LanguageModel, variant: Extended) -> Iterator[None]:
    """`rmutils.attention.rope.extend`, and a fine-tune where one is wanted, for a while."""
    config, inner = lm.model.config, lm.model.base_model
    before = config.rope_parameters, config.max_position_embeddings, inner.rotary_emb
    weights = [weight.detach().clone() for weight in lm.model.parameters()
               if variant.fine_tune_steps]
    try:
        extend(lm.model, variant)
        if variant.fine_tune_steps:
            _fine_tune(lm, variant)
        yield
    finally:
        config.rope_parameters, config.max_position_embeddings, inner.rotary_emb = before
        with torch.no_grad():
            for weight, old in zip(lm.model.parameters(), weights, strict=False):
                weight.copy_(old)


def _fine_tune(lm: LanguageModel, variant: Extended) -> None:
    """As `rmutils.experiments.olmo3.extension` does."""
    if lm.name not in RECIPES:
        raise UserError(f"{lm.name} is no teaching model, so it has no fine-tune. "
                        f"Models: {', '.join(RECIPES)}")
    recipe, steps = RECIPES[lm.name], variant.fine_tune_steps
    config = ExtensionConfig(factor=variant.factor, steps=steps)
    length = round(trained_window(recipe) * variant.factor)
    packed = instances(lm, recipe, config)
    with torch.enable_grad(), progress_bar(f"{lm.name}, fine-tune", steps,
                                           unit="steps") as advance:
        for _ in fine_tune(lm, packed, length, config.rate):
            advance(1)


def watch_of(lm: LanguageModel, variant: Variant) -> Watch | None:
    """How a model is watched under a variant that it was switched to by
    `rmutils.experiments.variant_subjects.under`.

    Returns
    -------
    callable or None
        For `rmutils.heads.detection.run_cases`; None where many texts can be read side by side.
    """
    match variant:
        case MsPoe(order="position_aware" | "reference"):
            return partial(_ordered, lm, variant)
        case Select():
            return partial(_selecting, lm, variant)
        case GemFilter():
            return partial(_filtering, lm, variant)
    return None


def _ordered(lm: LanguageModel, config: MsPoeConfig, prompt: Sequence[int], **how) -> Answer:
    with rescaled(lm.model, config, prompt):
        return _alone(lm, prompt, **how)


def _alone(lm: LanguageModel, prompt: Sequence[int], **how) -> Answer:
    with capturing(lm.model) as recorder:
        return decode(lm.model, recorder, [prompt], [Trunk(lm.model, prompt[:-1]).cache], **how)[0]


def _selecting(
    lm: LanguageModel, config: SelectConfig, prompt: Sequence[int], *, max_new_tokens: int,
    stop_ids: Collection[int],
) -> Answer:
    """Positions are those in the text: the recorder looks them up among the selected tokens."""
    said, selection, _ = answer_selecting(
        lm, prompt, config, max_new_tokens=max_new_tokens, stop_ids=stop_ids,
        recorder=ArgMaxRecorder())
    looked = torch.stack(selection.looked)[:len(said)]
    return Answer(np.array(said, dtype=int), looked.cpu().numpy())


def _filtering(
    lm: LanguageModel, config: GemFilterConfig, prompt: Sequence[int], *, max_new_tokens: int,
    stop_ids: Collection[int],
) -> Answer:
    """Positions among the tokens that are read become those in the prompt."""
    places = choose(lm, prompt, config)
    answer = _alone(lm, [prompt[i] for i in places], max_new_tokens=max_new_tokens,
                    stop_ids=stop_ids)
    behind = range(len(prompt), len(prompt) + max_new_tokens)
    return Answer(answer.tokens, np.array([*places, *behind])[answer.positions])


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
