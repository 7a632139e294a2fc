"""Losses by masking heads, from stored masking sweeps (chapter on appendix B).

Numbers of heads are those of Llama-3.1-8B-Instruct, which has 1,024: the model at hand is masked in
as large a share of its own, at the nearest number that its sweep has.

Failures of masked models, from stored responses (chapter on appendix H).
"""

from __future__ import annotations

from functools import cache

from rmutils.core.results import Artifact
from rmutils.experiments.failure_modes import WHOLE, FailureModes, failure_modes_stored
from rmutils.experiments.masking_sweep import Sweep, count_at, scored, sweep_stored
from rmutils.experiments.sweep_questions import HAYSTACK
from rmutils.experiments.sweet_spot import REPETITION, SHARES, UNMASKED, Mask, mean_under
from rmutils.heads.scores import HeadScores
from rmutils.models.registry import tau_of
from rmutils.paper.verdicts import Effect, quantity

LLAMA_HEADS = 1024
RETRIEVAL, OTHERS = "retrieval", "non-retrieval"


@quantity
def needles_lost_beyond_others(model: str) -> Effect:
    """Share of needles that are found with as many other heads masked, but not without the
    retrieval heads; minus those of which the opposite holds."""
    swept, scores, artifact = _stored(model)
    count = count_at(scores, tau_of(model))
    return _answers(swept, HAYSTACK, (OTHERS, count), (RETRIEVAL, count), artifact)


@quantity
def answers_lost_at_tau(model: str, measure: str) -> Effect:
    """Share of right answers of a kind that is lost without the retrieval heads."""
    swept, scores, artifact = _stored(model)
    return _answers(swept, measure, UNMASKED, (RETRIEVAL, count_at(scores, tau_of(model))),
                       artifact)


@quantity
def answers_lost(model: str, measure: str, heads: int) -> Effect:
    """Share of right answers of a kind that is lost without so many of the highest heads."""
    swept, scores, artifact = _stored(model)
    return _answers(swept, measure, UNMASKED, (RETRIEVAL, _nearest(swept, scores, heads)),
                       artifact)


@quantity
def answers_left(model: str, measure: str, heads: int) -> Effect:
    """Share of right answers of a kind that is left without so many of the highest heads."""
    swept, scores, artifact = _stored(model)
    return _answers(swept, measure, (RETRIEVAL, _nearest(swept, scores, heads)), None, artifact)


@quantity
def needles_lost_by_more_heads(model: str, heads: int) -> Effect:
    """Share of needles lost without so many of the highest heads, minus the share lost without the
    fewest of the sweep."""
    swept, scores, artifact = _stored(model)
    return _answers(swept, HAYSTACK, (RETRIEVAL, min(_counts(swept))),
                       (RETRIEVAL, _nearest(swept, scores, heads)), artifact)


@quantity
def repetition_added_at_tau(model: str) -> Effect:
    """Rise of the repetition rate of short answers without the retrieval heads."""
    swept, scores, artifact = _stored(model)
    return _repetition(swept, count_at(scores, tau_of(model)), artifact)


@quantity
def repetition_added_at_most(model: str) -> Effect:
    """Rise of the repetition rate of short answers at the largest number of masked heads."""
    swept, _, artifact = _stored(model)
    return _repetition(swept, max(_counts(swept)), artifact)


def _stored(model: str) -> tuple[Sweep, HeadScores, str]:
    scores, _ = scored(model, compute="never")
    swept, artifact = sweep_stored(model, scores, compute="never")
    return swept, scores, artifact.name


def _counts(swept: Sweep) -> list[int]:
    """Numbers of highest heads that were masked."""
    return sorted(swept.answers.loc[swept.answers["policy"] == RETRIEVAL, "count"].unique())


def _nearest(swept: Sweep, scores: HeadScores, heads: int) -> int:
    wanted = heads / LLAMA_HEADS * scores.mean.size
    return min(_counts(swept), key=lambda count: abs(count - wanted))


def _answers(
    swept: Sweep, measure: str, mask: Mask, minus: Mask | None, artifact: str
) -> Effect:
    """Right answers under one mask minus those under another, on the same questions."""
    rows = swept.answers[swept.answers["task"].isin(SHARES[measure])]
    return Effect.of(mean_under(rows, "correct", mask, minus), "share of answers", [artifact])


def _repetition(swept: Sweep, count: int, artifact: str) -> Effect:
    added = mean_under(swept.speech, REPETITION, (RETRIEVAL, count), UNMASKED)
    return Effect.of(added, "share of spans", [artifact])


@quantity
def failures_added(model: str, kind: str) -> Effect:
    """Share of prompts of a kind that the whole model passes, but not without its retrieval heads;
    minus those of which the opposite holds."""
    return _lost(model, kind, WHOLE, RETRIEVAL)


@quantity
def failures_added_by_others(model: str, kind: str) -> Effect:
    """Share of prompts of a kind that the whole model passes, but not without as many other heads;
    minus those of which the opposite holds."""
    return _lost(model, kind, WHOLE, OTHERS)


@quantity
def failures_added_beyond_others(model: str, kind: str) -> Effect:
    """Share of prompts of a kind that the model passes without other heads, but not without its
    retrieval heads; minus those of which the opposite holds."""
    return _lost(model, kind, OTHERS, RETRIEVAL)


@cache
def _stored_failures(model: str) -> tuple[FailureModes, Artifact]:
    """Read once: checking all responses takes a second."""
    return failure_modes_stored(model, compute="never")


def _lost(model: str, kind: str, more: str, less: str) -> Effect:
    modes, artifact = _stored_failures(model)
    row = modes.losses().set_index(["kind", "more", "less"]).loc[kind, more, less]
    return Effect(row["value"], row["low"], row["high"], "share of prompts", (artifact.name,))
