"""Measures of what masking heads costs: needles, answers, repetition, and prompts failed."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

from rmutils.book.chapters.failure_modes.experiment import (
    WHOLE,
    FailureConfig,
    FailureModes,
    failure_modes_stored,
)
from rmutils.book.chapters.masking_sweep.experiment import (
    Sweep,
    count_at,
    scored,
    shown_sweep,
    sweep_stored,
)
from rmutils.book.chapters.masking_sweep.sweet_spot import (
    REPETITION,
    SHARES,
    UNMASKED,
    Mask,
    mean_under,
)
from rmutils.book.claims.effects.real_effects import LARGER, needles_lost
from rmutils.book.experiments.masked_needles import ANYWHERE
from rmutils.book.experiments.masked_needles import MATCHED as SAME_LAYERS
from rmutils.book.experiments.sweep_questions import HAYSTACK
from rmutils.book.verdicts import MARGIN, Effect, blind_spot, quantity
from rmutils.core.experiment import load_plan
from rmutils.core.results import Artifact
from rmutils.evaluation.failure_prompts import OUTCOMES, outcome
from rmutils.heads.masking import MATCHED, count_displaced, draw_layer_matched
from rmutils.heads.scores import HeadScores
from rmutils.models.known_models import tau_of

LLAMA_HEADS = 1024
BY_SCORE, OTHERS = "retrieval", "non-retrieval"


@quantity("without its retrieval heads {model} misses {effect} percentage points more needles than "
          "without the same number of others from all layers", scale=100)
def needles_lost_beyond_others(model: str) -> Effect:
    """Share of needles that are found with as many other heads masked, but not without the
    retrieval heads; minus those of which the opposite holds."""
    if model in LARGER:
        return needles_lost(model, ANYWHERE)
    swept, scores, artifact = _stored(model)
    count = count_at(scores, tau_of(model))
    return _answers(swept, HAYSTACK, (OTHERS, count), (BY_SCORE, count), artifact)


@quantity("without its retrieval heads {model} misses {effect} percentage points more needles than "
          "without the same number of others of these layers", scale=100)
def needles_lost_beyond_same_layers(model: str) -> Effect:
    """Share of needles that are found with as many other heads of the same layers masked, but not
    without the retrieval heads; minus those of which the opposite holds."""
    if model in LARGER:
        return needles_lost(model, SAME_LAYERS)
    swept, scores, artifacts = shown_sweep(model)
    count = count_at(scores, tau_of(model))
    heads = scores.ranking()[:count]
    displaced = count_displaced(draw_layer_matched(scores.shape, heads, exclude=heads), heads)
    note = (f"{displaced} of the {count} others come from another layer, since their own has too "
            "few" if displaced else "")
    return _answers(swept, HAYSTACK, (MATCHED, count), (BY_SCORE, count),
                    *(one.name for one in artifacts), note=note)


@quantity("without its retrieval heads {model} loses {effect} percentage points of its answers to "
          "the {measure}", scale=100)
def answers_lost_at_tau(model: str, measure: str) -> Effect:
    """Share of right answers of a kind that is lost without the retrieval heads."""
    swept, scores, artifact = _stored(model)
    mask = BY_SCORE, count_at(scores, tau_of(model))
    return _answers(swept, measure, UNMASKED, mask, artifact)


@quantity("with {heads} of 1,024 heads masked, or as large a share, {model} loses {effect} "
          "percentage points of its answers to the {measure}", scale=100)
def answers_lost(model: str, measure: str, heads: int) -> Effect:
    """Share of right answers of a kind that is lost without so many of the highest heads."""
    swept, scores, artifact = _stored(model)
    return _answers(swept, measure, UNMASKED, (BY_SCORE, _nearest(swept, scores, heads)), artifact)


@quantity("with {heads} of 1,024 heads masked, or as large a share, {model} gets {effect} % of the "
          "{measure} right", scale=100)
def answers_left(model: str, measure: str, heads: int) -> Effect:
    """Share of right answers of a kind that is left without so many of the highest heads."""
    swept, scores, artifact = _stored(model)
    return _answers(swept, measure, (BY_SCORE, _nearest(swept, scores, heads)), None, artifact)


@quantity("with {heads} of 1,024 heads masked, or as large a share, {model} misses {effect} "
          "percentage points more needles than with the fewest masked", scale=100)
def needles_lost_by_more_heads(model: str, heads: int) -> Effect:
    """Share of needles lost without so many of the highest heads, minus that without the fewest."""
    swept, scores, artifact = _stored(model)
    return _answers(swept, HAYSTACK, (BY_SCORE, min(_counts(swept))),
                    (BY_SCORE, _nearest(swept, scores, heads)), artifact)


@quantity("without its retrieval heads {model} repeats {effect} percentage points more of what it "
          "says", scale=100)
def repetition_added_at_tau(model: str) -> Effect:
    """Rise of the repetition rate of short answers without the retrieval heads; mean over their
    number and the two next to it in the sweep, because few answers are asked at each."""
    swept, scores, artifact = _stored(model)
    counts = _counts(swept)
    at = counts.index(count_at(scores, tau_of(model)))
    return _repetition(swept, counts[max(at - 1, 0):at + 2], artifact)


@quantity("with the most heads masked {model} repeats {effect} percentage points more of what it "
          "says", scale=100)
def repetition_added_at_most(model: str) -> Effect:
    """Rise of the repetition rate of short answers at the largest number of masked heads."""
    swept, _, artifact = _stored(model)
    return _repetition(swept, [max(_counts(swept))], artifact)


def _layer_matched(chapter: str) -> dict:
    """Return what the plan of the layer-matched controls says of a chapter."""
    part, = (part for part in load_plan("layer_matched").content["parts"]
             if part["chapter"] == chapter)
    return part


def _stored(model: str) -> tuple[Sweep, HeadScores, str]:
    scores, _ = scored(model, compute="never")
    swept, artifact = sweep_stored(model, scores, compute="never")
    return swept, scores, artifact.name


def _counts(swept: Sweep) -> list[int]:
    """Numbers of highest heads that were masked."""
    return sorted(swept.answers.loc[swept.answers["policy"] == BY_SCORE, "count"].unique())


def _nearest(swept: Sweep, scores: HeadScores, heads: int) -> int:
    wanted = heads / LLAMA_HEADS * scores.mean.size
    return min(_counts(swept), key=lambda count: abs(count - wanted))


def _answers(
    swept: Sweep, measure: str, mask: Mask, minus: Mask | None, *artifacts: str, note: str = ""
) -> Effect:
    """Right answers under one mask minus those under another, on the same questions. A loss is
    looked for, so a whole model at the ceiling is not blind."""
    rows = swept.answers[swept.answers["task"].isin(SHARES[measure])]
    whole = rows.loc[rows["policy"] == "whole", "correct"].mean()
    return Effect.of(mean_under(rows, "correct", mask, minus), "share of answers", artifacts,
                     _clusters(rows), note, blind_spot(100 * whole, 0, measure, ceiling=False))


def _clusters(rows: pd.DataFrame) -> int:
    return len(rows[["task", "cluster"]].drop_duplicates())


def _repetition(swept: Sweep, counts: list[int], artifact: str) -> Effect:
    rows = swept.speech
    masked = rows[(rows["policy"] == BY_SCORE) & rows["count"].isin(counts)]
    whole = rows[(rows["policy"] == UNMASKED[0]) & (rows["count"] == UNMASKED[1])]
    one_mask = pd.concat([masked.assign(count=counts[0], draw=masked["count"]), whole])
    added = mean_under(one_mask, REPETITION, (BY_SCORE, counts[0]), UNMASKED)
    return Effect.of(added, "share of spans", [artifact], _clusters(rows))


@quantity("without its retrieval heads {model} fails {effect} percentage points more prompts of "
          "the kind “{kind}”", scale=100)
def failures_added(model: str, kind: str) -> Effect:
    """Share of prompts of a kind that masking the retrieval heads loses, minus those it wins."""
    return _lost(model, kind, WHOLE, BY_SCORE)


@quantity("without as many other heads {model} fails {effect} percentage points more prompts of "
          "the kind “{kind}”", scale=100)
def failures_added_by_others(model: str, kind: str) -> Effect:
    """Share of prompts of a kind that masking other heads loses, minus those that it wins."""
    return _lost(model, kind, WHOLE, OTHERS)


@quantity("without as many other heads of the same layers {model} fails {effect} percentage points "
          "more prompts of the kind “{kind}”", scale=100)
def failures_added_by_same_layers(model: str, kind: str) -> Effect:
    """Share of prompts of a kind that masking other heads of the same layers loses, minus those
    that it wins."""
    return _lost(model, kind, WHOLE, MATCHED)


@quantity("without its retrieval heads {model} fails {effect} percentage points more prompts of "
          "the kind “{kind}” than without the same number of others", scale=100)
def failures_added_beyond_others(model: str, kind: str) -> Effect:
    """Share of prompts that only masking retrieval heads loses, minus those only others lose."""
    return _lost(model, kind, OTHERS, BY_SCORE)


@cache
def _stored_failures(model: str) -> tuple[FailureModes, Artifact]:
    """Read once: checking all responses takes a second."""
    return failure_modes_stored(model, compute="never")


@cache
def _same_layers(model: str) -> tuple[FailureModes, Artifact]:
    """The responses that a plan asks of names, with others of the same layers masked."""
    plan = _layer_matched("08_failure_modes")
    return failure_modes_stored(model, FailureConfig(
        policies=(MATCHED,), draws=plan["draws"], kinds=(COPIED,)), compute="never")


def _lost(model: str, kind: str, more: str, less: str) -> Effect:
    modes, artifact = _stored_failures(model)
    if less == MATCHED:
        matched, artifact = _same_layers(model)
        modes = modes.beside(matched)
    row = modes.losses().set_index(["kind", "more", "less"]).loc[kind, more, less]
    return Effect(row["value"], row["low"], row["high"], "share of prompts", (artifact.name,),
                  modes.table.query("kind == @kind")["prompt"].nunique(),
                  blind=failure_blind_spot(modes, kind))


COPIED = "entity name"
"""The kind whose task is to copy, so that a response may repeat the prompt."""


def failure_blind_spot(modes: FailureModes, kind: str) -> str:
    """Why responses of this kind could not have shown it: the prompt itself passes, or the whole
    model's responses pass as often on other prompts."""
    own = modes.table.query("kind == @kind and masked == @WHOLE")
    right, prompts = OUTCOMES[kind][0], [modes.prompts[i] for i in own["prompt"]]
    echoed = np.mean([outcome(prompt, prompt.text) == right for prompt in prompts])
    if kind != COPIED and echoed > MARGIN / 100:
        return f"{kind}: a response that repeats the prompt passes {echoed:.0%} of the prompts"
    shifted = [*own["text"].iloc[1:], own["text"].iloc[0]]
    chance = np.mean([outcome(prompt, text) == right
                      for prompt, text in zip(prompts, shifted, strict=True)])
    return blind_spot(100 * own["passed"].mean(), 100 * chance, kind)
