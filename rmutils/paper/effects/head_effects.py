"""Measures of retrieval heads: their scores, what training does to them, and what masking costs.

All runs of a strategy that were planned count, or none: a result that only some seeds support would
depend on which of them happen to be stored.
"""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import pandas as pd

from rmutils.core.errors import NotStored
from rmutils.core.results import Artifact
from rmutils.experiments.failure_modes import WHOLE, FailureModes, failure_modes_stored
from rmutils.experiments.masking_sweep import Sweep, count_at, scored, sweep_stored
from rmutils.experiments.sweep_questions import HAYSTACK
from rmutils.experiments.sweet_spot import REPETITION, SHARES, UNMASKED, Mask, mean_under
from rmutils.heads.head_change import (
    ALL,
    OTHER,
    RETRIEVAL,
    Cases,
    PairedDetection,
    needles_found,
    training_effect,
)
from rmutils.heads.scores import HeadScores
from rmutils.heads.sparsity import ranking_stability, share_above
from rmutils.models.known_models import tau_of
from rmutils.paper.verdicts import Effect, quantity
from rmutils.pipeline.planned_runs import planned_runs, stored_runs
from rmutils.pipeline.retmask import RetMaskRun

NEEDLES = 3
"""As many as the detection script that section 4.1 adopts has."""
TENTH = 0.1


@quantity
def share_of_retrieval_heads(model: str) -> Effect:
    """Share of heads at or above the model's threshold."""
    scores, artifact = scored(model, compute="never")
    share = scores.statistic(partial(share_above, tau=tau_of(model)))
    return Effect.of(share, "share of heads", [artifact.name])


@quantity
def scores_held_by_top_tenth(model: str) -> Effect:
    """Share of all retrieval scores, added up, that the highest tenth of the heads hold."""
    scores, artifact = scored(model, compute="never")
    return Effect.of(scores.statistic(_held_by_top_tenth), "share of scores", [artifact.name])


def _held_by_top_tenth(means: np.ndarray) -> np.ndarray:
    ranked = -np.sort(-means.reshape(len(means), -1), axis=1)
    return ranked[:, :round(TENTH * ranked.shape[1])].sum(1) / ranked.sum(1)


@quantity
def retrieval_heads_from_few_needles(model: str) -> Effect:
    """Share of the retrieval heads that a detection with three of the needles finds, too; the
    interval holds 95 % of the choices of three."""
    scores, artifact = scored(model, compute="never")
    heads = len(scores.select(tau=tau_of(model)))
    row = ranking_stability(scores, [NEEDLES], top_k=heads, draws=200).iloc[0]
    return Effect(row["overlap"], row["overlap_low"], row["overlap_high"], "share of heads",
                  (artifact.name,))


RETMASK = "retmask"
SCORE, SHARE = "score", "share of the score before"


@quantity
def mean_score_change(model: str, cases: Cases = "successful") -> Effect:
    """Change of the mean retrieval score of all heads by RetMask, as a share of it before."""
    return _change(model, ALL, "relative change", cases)


@quantity
def retrieval_heads_change(model: str, cases: Cases = "successful") -> Effect:
    """Change of the mean score of the retrieval heads by RetMask."""
    return _change(model, RETRIEVAL, "change", cases)


@quantity
def retrieval_heads_change_beyond_others(model: str, cases: Cases = "successful") -> Effect:
    """Change of the mean score of the retrieval heads by RetMask, minus that of all other heads."""
    return _change(model, f"retrieval less {OTHER}", "change", cases)


@quantity
def selective_change(model: str, cases: Cases = "both") -> Effect:
    """Relative change of the retrieval heads by RetMask, minus that of all other heads."""
    return _change(model, f"retrieval less {OTHER}", "relative change", cases)


@quantity
def retrieval_heads_change_beyond(model: str, strategy: str) -> Effect:
    """Score of the retrieval heads after RetMask, minus that after another strategy, seed by seed,
    over the cases that both trained models solve."""
    ours, theirs = trainings(model, RETMASK), trainings(model, strategy)
    pairs = [PairedDetection(other.after, own.after, _retrieval_heads(own))
             for own, other in zip(ours, theirs, strict=True)]
    return _row(training_effect(pairs, cases="both"), "change", SCORE, [*ours, *theirs],
                RETRIEVAL)


@quantity
def needles_found_change(model: str) -> Effect:
    """Change of the share of needles found, by RetMask, on the grid of the detection."""
    runs = trainings(model, RETMASK)
    return _row(needles_found(_pairs(runs)), "change", "share of needles", runs)


@cache
def trainings(model: str, strategy: str, **changes: object) -> list[RetMaskRun]:
    """All runs of a strategy that were planned, by seed. They are read once.

    Parameters
    ----------
    **changes
        What is other than planned, as for `Config.changed`.

    Raises
    ------
    NotStored
        Some are not stored; with the command that makes the first of them.
    """
    configs = [config.changed(changes) for config in planned_runs(model)
               if config.strategy == strategy]
    runs, missing = stored_runs(model, configs)
    if missing:
        raise NotStored(f"{len(missing)} of the {len(configs)} runs of {strategy} planned on "
                        f"{model} are not stored. The first is made by `{missing[0]}`.")
    return runs


def _retrieval_heads(run: RetMaskRun) -> list[tuple[int, int]]:
    return run.before.select(tau=run.artifact.manifest["config"]["tau"])


def _pairs(runs: list[RetMaskRun]) -> list[PairedDetection]:
    return [PairedDetection(run.before, run.after, _retrieval_heads(run)) for run in runs]


def _change(model: str, group: str, quantity: str, cases: Cases) -> Effect:
    runs = trainings(model, RETMASK)
    return _row(training_effect(_pairs(runs), cases=cases), quantity,
                SCORE if quantity == "change" else SHARE, runs, group)


def _row(table: pd.DataFrame, quantity: str, unit: str, runs: list[RetMaskRun],
         group: str | None = None) -> Effect:
    chosen = table[table["quantity"] == quantity]
    row = (chosen if group is None else chosen[chosen["group"] == group]).iloc[0]
    return Effect(row["value"], row["low"], row["high"], unit,
                  tuple(run.artifact.name for run in runs))


LLAMA_HEADS = 1024
BY_SCORE, OTHERS = "retrieval", "non-retrieval"


@quantity
def needles_lost_beyond_others(model: str) -> Effect:
    """Share of needles that are found with as many other heads masked, but not without the
    retrieval heads; minus those of which the opposite holds."""
    swept, scores, artifact = _stored(model)
    count = count_at(scores, tau_of(model))
    return _answers(swept, HAYSTACK, (OTHERS, count), (BY_SCORE, count), artifact)


@quantity
def answers_lost_at_tau(model: str, measure: str) -> Effect:
    """Share of right answers of a kind that is lost without the retrieval heads."""
    swept, scores, artifact = _stored(model)
    return _answers(swept, measure, UNMASKED, (BY_SCORE, count_at(scores, tau_of(model))),
                       artifact)


@quantity
def answers_lost(model: str, measure: str, heads: int) -> Effect:
    """Share of right answers of a kind that is lost without so many of the highest heads."""
    swept, scores, artifact = _stored(model)
    return _answers(swept, measure, UNMASKED, (BY_SCORE, _nearest(swept, scores, heads)),
                       artifact)


@quantity
def answers_left(model: str, measure: str, heads: int) -> Effect:
    """Share of right answers of a kind that is left without so many of the highest heads."""
    swept, scores, artifact = _stored(model)
    return _answers(swept, measure, (BY_SCORE, _nearest(swept, scores, heads)), None, artifact)


@quantity
def needles_lost_by_more_heads(model: str, heads: int) -> Effect:
    """Share of needles lost without so many of the highest heads, minus the share lost without the
    fewest of the sweep."""
    swept, scores, artifact = _stored(model)
    return _answers(swept, HAYSTACK, (BY_SCORE, min(_counts(swept))),
                       (BY_SCORE, _nearest(swept, scores, heads)), artifact)


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
    return sorted(swept.answers.loc[swept.answers["policy"] == BY_SCORE, "count"].unique())


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
    added = mean_under(swept.speech, REPETITION, (BY_SCORE, count), UNMASKED)
    return Effect.of(added, "share of spans", [artifact])


@quantity
def failures_added(model: str, kind: str) -> Effect:
    """Share of prompts of a kind that the whole model passes, but not without its retrieval heads;
    minus those of which the opposite holds."""
    return _lost(model, kind, WHOLE, BY_SCORE)


@quantity
def failures_added_by_others(model: str, kind: str) -> Effect:
    """Share of prompts of a kind that the whole model passes, but not without as many other heads;
    minus those of which the opposite holds."""
    return _lost(model, kind, WHOLE, OTHERS)


@quantity
def failures_added_beyond_others(model: str, kind: str) -> Effect:
    """Share of prompts of a kind that the model passes without other heads, but not without its
    retrieval heads; minus those of which the opposite holds."""
    return _lost(model, kind, OTHERS, BY_SCORE)


@cache
def _stored_failures(model: str) -> tuple[FailureModes, Artifact]:
    """Read once: checking all responses takes a second."""
    return failure_modes_stored(model, compute="never")


def _lost(model: str, kind: str, more: str, less: str) -> Effect:
    modes, artifact = _stored_failures(model)
    row = modes.losses().set_index(["kind", "more", "less"]).loc[kind, more, less]
    return Effect(row["value"], row["low"], row["high"], "share of prompts", (artifact.name,))
