"""What masking heads costs, from stored masking sweeps (chapter on appendix B).

Numbers of heads are those of Llama-3.1-8B-Instruct, which has 1,024: the model at hand is masked in
as large a share of its own, at the nearest number that its sweep has.

What masked models fail in, from stored responses (chapter on appendix H).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

from rmutils.core.results import Artifact
from rmutils.experiments.failure_modes import WHOLE, FailureModes, failure_modes_stored
from rmutils.experiments.masking_sweep import Sweep, count_at, scored, sweep_stored
from rmutils.experiments.sweep_questions import HAYSTACK
from rmutils.experiments.sweet_spot import KEYS, REPETITION, SHARES
from rmutils.heads.scores import HeadScores
from rmutils.models.registry import tau_of
from rmutils.paper.verdicts import Effect
from rmutils.stats import bootstrap_mean

LLAMA_HEADS = 1024
UNMASKED, RETRIEVAL, OTHERS = "whole", "retrieval", "non-retrieval"
Mask = tuple[str, int]
"""Policy and number of heads."""


def needles_lost_beyond_others(model: str) -> Effect:
    """Share of needles that are found with as many other heads masked, but not without the
    retrieval heads; less those of which the opposite holds."""
    swept, scores, artifact = _stored(model)
    count = count_at(scores, tau_of(model))
    return _difference(swept, HAYSTACK, (OTHERS, count), (RETRIEVAL, count), artifact)


def answers_lost_at_tau(model: str, measure: str) -> Effect:
    """Share of right answers of a kind that is lost without the retrieval heads."""
    swept, scores, artifact = _stored(model)
    return _difference(swept, measure, (UNMASKED, 0), (RETRIEVAL, count_at(scores, tau_of(model))),
                       artifact)


def answers_lost(model: str, measure: str, heads: int) -> Effect:
    """Share of right answers of a kind that is lost without so many of the highest heads."""
    swept, scores, artifact = _stored(model)
    return _difference(swept, measure, (UNMASKED, 0), (RETRIEVAL, _nearest(swept, scores, heads)),
                       artifact)


def answers_left(model: str, measure: str, heads: int) -> Effect:
    """Share of right answers of a kind that is left without so many of the highest heads."""
    swept, scores, artifact = _stored(model)
    rows = _answers(swept, measure, (RETRIEVAL, _nearest(swept, scores, heads)))
    return _effect(rows.to_numpy(), rows.index, artifact, least=0)


def needles_lost_by_more_heads(model: str, heads: int) -> Effect:
    """Share of needles that is lost without so many of the highest heads, less what is lost without
    the fewest of the sweep."""
    swept, scores, artifact = _stored(model)
    return _difference(swept, HAYSTACK, (RETRIEVAL, min(_counts(swept))),
                       (RETRIEVAL, _nearest(swept, scores, heads)), artifact)


def repetition_added_at_tau(model: str) -> Effect:
    """Rise of the repetition rate of short answers without the retrieval heads."""
    swept, scores, artifact = _stored(model)
    return _repetition(swept, count_at(scores, tau_of(model)), artifact)


def repetition_added_at_most(model: str) -> Effect:
    """Rise of the repetition rate of short answers at the largest number of masked heads."""
    swept, _, artifact = _stored(model)
    return _repetition(swept, max(_counts(swept)), artifact)


def _stored(model: str) -> tuple[Sweep, HeadScores, str]:
    scores, _ = scored(model, compute="never")
    swept, artifact = sweep_stored(model, scores, compute="never")
    return swept, scores, artifact.name


def _counts(swept: Sweep) -> list[int]:
    """How many of the highest heads were masked."""
    return sorted(swept.answers.loc[swept.answers["policy"] == RETRIEVAL, "count"].unique())


def _nearest(swept: Sweep, scores: HeadScores, heads: int) -> int:
    wanted = heads / LLAMA_HEADS * scores.mean.size
    return min(_counts(swept), key=lambda count: abs(count - wanted))


def _answers(swept: Sweep, measure: str, mask: Mask) -> pd.DataFrame:
    """Whether answers are right: a row per question (with its cluster), a column per draw."""
    return _wide(swept.answers[swept.answers["task"].isin(SHARES[measure])], "correct", mask)


def _wide(rows: pd.DataFrame, value: str, mask: Mask) -> pd.DataFrame:
    policy, count = mask
    rows = rows[(rows["policy"] == policy) & (rows["count"] == count)]
    return rows.pivot(index=[*KEYS, "cluster"], columns="draw", values=value).astype(float)


def _difference(swept: Sweep, measure: str, more: Mask, less: Mask, artifact: str) -> Effect:
    """Right answers under one mask less those under another, on the same questions; where heads
    were drawn at random, the draws are drawn anew."""
    a, b = (_answers(swept, measure, mask) for mask in (more, less))
    return _effect(a.to_numpy() - b.loc[a.index].to_numpy(), a.index, artifact)


def _effect(
    values: np.ndarray, index: pd.MultiIndex, artifact: str, *, unit: str = "share of answers",
    least: float = -1,
) -> Effect:
    clusters = pd.factorize(index.droplevel("sample"))[0]  # task and cluster
    drawn = Effect.drawn(bootstrap_mean(values, clusters), unit, [artifact])
    return drawn.of_shares(len(np.unique(clusters)), least=least)


def _repetition(swept: Sweep, count: int, artifact: str) -> Effect:
    masked, whole = (_wide(swept.speech, REPETITION, mask)
                     for mask in ((RETRIEVAL, count), (UNMASKED, 0)))
    return _effect(masked.to_numpy() - whole.loc[masked.index].to_numpy(), masked.index, artifact,
                   unit="share of spans")


RETRIEVAL_MASK, OTHERS_MASK = "retrieval", "non-retrieval"


def failures_added(model: str, kind: str) -> Effect:
    """Share of prompts of a kind that the whole model passes, but not without its retrieval heads;
    less those of which the opposite holds."""
    return _lost(model, kind, WHOLE, RETRIEVAL_MASK)


def failures_added_by_others(model: str, kind: str) -> Effect:
    """Share of prompts of a kind that the whole model passes, but not without as many other heads;
    less those of which the opposite holds."""
    return _lost(model, kind, WHOLE, OTHERS_MASK)


def failures_added_beyond_others(model: str, kind: str) -> Effect:
    """Share of prompts of a kind that the model passes without other heads, but not without its
    retrieval heads; less those of which the opposite holds."""
    return _lost(model, kind, OTHERS_MASK, RETRIEVAL_MASK)


@cache
def _stored_failures(model: str) -> tuple[FailureModes, Artifact]:
    """Read once: checking all responses takes a second."""
    return failure_modes_stored(model, compute="never")


def _lost(model: str, kind: str, more: str, less: str) -> Effect:
    modes, artifact = _stored_failures(model)
    row = modes.losses().set_index(["kind", "more", "less"]).loc[kind, more, less]
    prompts = modes.table.loc[modes.table["kind"] == kind, "prompt"].nunique()
    return Effect(row["value"], row["low"], row["high"], "share of prompts",
                  (artifact.name,)).of_shares(prompts)
