"""Measures of retrieval heads, from stored detections, and of what a training did to their scores,
from the stored runs of the book (section 5.3).

All runs of a strategy that were planned count, or none: a result that only some seeds support would
depend on which of them happen to be stored.
"""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import pandas as pd

from rmutils.core.errors import NotStored
from rmutils.experiments.masking_sweep import scored
from rmutils.heads.head_change import (
    ALL,
    OTHER,
    RETRIEVAL,
    Cases,
    PairedDetection,
    needles_found,
    training_effect,
)
from rmutils.heads.sparsity import ranking_stability, share_above
from rmutils.models.registry import tau_of
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
