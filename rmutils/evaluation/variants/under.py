"""Switch a model to a variant of its attention, for a while."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from rmutils.attention import sharing_plans
from rmutils.attention.ms_poe import rescaled
from rmutils.attention.share_attention import Sharing, retention, sharing_heads
from rmutils.errors import UserError
from rmutils.evaluation.variants.kinds import (
    Extended,
    GemFilter,
    MsPoe,
    Retain,
    Select,
    Share,
    Variant,
)
from rmutils.evaluation.variants.questions import DocumentsConfig, document_questions
from rmutils.evaluation.variants.subjects import ByPrompt, Filtering, Selecting, Subject
from rmutils.longcontext.extension import ExtensionConfig, fine_tune, instances, trained_window
from rmutils.longcontext.rope import extend
from rmutils.models import LanguageModel
from rmutils.models.teaching import RECIPES
from rmutils.progress import progress_bar

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
        apart = sharing_plans.mean_distances(lm.model, prompts)
        return sharing_plans.sharing_at(apart, sharing_plans.threshold_for(apart, variant.kept))
    sharing = sharing_plans.find_sharing(lm.model, prompts, variant.threshold)
    return sharing if variant.at_random is None else sharing_plans.shuffled(
        sharing, variant.at_random)


def calibration(lm: LanguageModel, variant: Share | Retain) -> list[Sequence[int]]:
    """The prompts whose attention maps say which heads are alike."""
    asked = DocumentsConfig(lengths=(variant.tokens,), places=(0.5,), questions=variant.prompts,
                            seed=CALIBRATION)
    return [question.prompt for question in document_questions(lm, asked).questions]


@contextmanager
def _extended(lm: LanguageModel, variant: Extended) -> Iterator[None]:
    """`rmutils.longcontext.rope.extend`, and a fine-tune where one is wanted, for a while."""
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
    """As `rmutils.longcontext.extension_store.extension` does."""
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
