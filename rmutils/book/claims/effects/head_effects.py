"""Measures of retrieval heads: their scores, and what training does to them.

Changes of scores are over the cases that are successful both before and after: over each model's
own, a score moves when a case is won or lost, without any head doing anything new.

All runs of a strategy that were planned count, or none: a result that only some seeds support would
depend on which of them happen to be stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pandas as pd

from rmutils.book.chapters.data_and_training.half_learned import (
    HALF_LEARNED,
    compare_arms,
    half_learned,
)
from rmutils.book.claims.effects.real_effects import TRAINED, detection_of, masked_heads_beyond
from rmutils.book.experiments.planned_runs import planned_runs, stored_runs
from rmutils.book.verdicts import MARGIN, Effect, blind_spot, quantity
from rmutils.core.errors import NotStored
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
from rmutils.heads.sparsity import recall_of_detections, share_above
from rmutils.paper import tables
from rmutils.paper.head_checks import HeadNumbers
from rmutils.pipeline.retmask import RetMaskRun

NEEDLES = 3  # as many as the detection script that section 4.1 adopts has
TENTH = 0.1


def _needles(scores: HeadScores) -> int:
    return scores.cases.loc[scores.cases["success"].astype(bool), "needle"].nunique()


@quantity("of the heads of {model}, {effect} % retrieve", scale=100)
def share_of_retrieval_heads(model: str) -> Effect:
    """Share of heads at or above the model's threshold."""
    scores, artifact, tau = detection_of(model)
    share = scores.statistic(partial(share_above, tau=tau))
    return Effect.of(share, "share of heads", [artifact.name], _needles(scores))


@quantity("the highest tenth of the heads of {model} holds {effect} % of all retrieval scores",
          scale=100)
def scores_held_by_top_tenth(model: str) -> Effect:
    """Share of all retrieval scores, added up, that the highest tenth of the heads hold."""
    scores, artifact, _ = detection_of(model)
    return Effect.of(scores.statistic(_held_by_top_tenth), "share of scores", [artifact.name],
                     _needles(scores))


def _held_by_top_tenth(means: np.ndarray) -> np.ndarray:
    ranked = -np.sort(-means.reshape(len(means), -1), axis=1)
    return ranked[:, :round(TENTH * ranked.shape[1])].sum(1) / ranked.sum(1)


@quantity("three needles find on average {effect} % of the retrieval heads of {model}", scale=100)
def retrieval_heads_from_few_needles(model: str) -> Effect:
    """Share of the retrieval heads that a detection with three of the needles finds, too, by the
    same threshold; on average over all choices of three, with an interval over needles."""
    scores, artifact, tau = detection_of(model)
    found, choices = recall_of_detections(scores, NEEDLES, tau=tau)
    return Effect.of(found, "share of heads", [artifact.name], _needles(scores),
                     f"over all {len(choices):,} choices; the worst finds {choices.min():.0%}")


@quantity("in the authors' files, {effect} % of the heads of {model} reach the threshold",
          scale=100)
def published_share_of_heads(model: str) -> Effect:
    """Share of heads at or above the paper's threshold in the authors' scores, with an interval
    over their runs, of which each counts once however often it was copied."""
    statistic = f"heads_at_least_{float(HeadNumbers(tables.PAPER).tau(model)):g}"
    once, all_runs = (_published_row(model, statistic, distinct) for distinct in (True, False))
    return Effect(
        *(once[column] / once["heads"] for column in ("value", "low", "high")), "share of heads",
        (), int(once["runs"]), _copies(model, all_runs["value"] / all_runs["heads"]))


def _published_row(model: str, statistic: str, distinct: bool) -> pd.Series:
    rows = tables.load_published_summary(distinct=distinct)
    return rows[(rows["model"] == model) & (rows["statistic"] == statistic)].iloc[0]


@quantity("in the authors' files, the highest tenth of the heads of {model} holds {effect} % of "
          "all retrieval scores", scale=100)
def published_scores_held_by_top_tenth(model: str) -> Effect:
    """Share of all scores that the highest tenth of the heads holds in the authors' files, each
    distinct run counted once: an exact number."""
    once, all_runs = (
        float(_held_by_top_tenth(rows.loc[rows["model"] == model, "mean"].to_numpy()[None])[0])
        for rows in (tables.load_published_scores(distinct=distinct) for distinct in (True, False)))
    return Effect(once, once, once, "share of scores", (), None, _copies(model, all_runs))


def _copies(model: str, with_copies: float) -> str:
    """Say what the same number is if copies of runs count."""
    runs = tables.load_published_maps().query("model == @model")["map"]
    return (f"each distinct run once; {len(runs) - runs.nunique()} of the {len(runs)} published "
            f"runs equal another one, and with these it is {with_copies:.1%}")


RETMASK = "retmask"
SCORE, SHARE, HEADROOM = "score", "share of the score before", "share of the headroom"


@quantity("RetMask changes the mean retrieval score of {model} by {effect} %", scale=100)
def mean_score_change(model: str) -> Effect:
    """Change of the mean retrieval score of all heads by RetMask, as a share of it before."""
    return _change(model, ALL, "relative change", SHARE)


@quantity("{strategy} changes the scores of the masked heads of {model} by {effect} points",
          scale=100)
def retrieval_heads_change(model: str, strategy: str = RETMASK) -> Effect:
    """Change of the mean score of the retrieval heads by a training."""
    return _change(model, RETRIEVAL, "change", SCORE, strategy)


def masked_heads_after(model: str, cases: Cases = "both") -> dict[str, Effect]:
    """Strategy -> `retrieval_heads_change` by it, of those whose planned runs are stored."""
    found = {}
    for strategy in dict.fromkeys((RETMASK, *(c.strategy for c in planned_runs(model)))):
        with suppress(NotStored):
            found[strategy] = _change(model, RETRIEVAL, "change", SCORE, strategy, cases)
    return found


@quantity("RetMask's change of the scores of the masked heads of {model}, minus that of other "
          "heads, is {effect} points", scale=100)
def retrieval_heads_change_beyond_others(model: str) -> Effect:
    """Change of the mean score of the retrieval heads by RetMask, minus that of all other heads."""
    return _change(model, f"retrieval minus {OTHER}", "change", SCORE)


@quantity("the share of the gap to a score of 1 that RetMask closes in the masked heads of "
          "{model}, minus that in its other heads, is {effect} percentage points", scale=100)
def selective_change(model: str) -> Effect:
    """Change of the retrieval heads by RetMask as a share of their headroom (what is missing to a
    score of 1), minus that of all other heads."""
    return _change(model, f"retrieval minus {OTHER}", "headroom change", HEADROOM)


@quantity("the scores of the masked heads of {model} after RetMask minus those after {strategy} "
          "are {effect} points", scale=100)
def retrieval_heads_change_beyond(model: str, strategy: str) -> Effect:
    """Score of the retrieval heads after RetMask, minus that after another strategy, seed by seed,
    over the cases that both trained models solve."""
    if model in TRAINED:
        return masked_heads_beyond(model, strategy)
    ours, theirs = trainings(model, RETMASK), trainings(model, strategy)
    pairs = [PairedDetection(other.after, own.after, _retrieval_heads(own))
             for own, other in zip(ours, theirs, strict=True)]
    return _row(training_effect(pairs, cases="both"), "change", SCORE, [*ours, *theirs], RETRIEVAL)


@quantity("on half-learned {model}, the scores of the masked heads after RetMask minus those after "
          "masking the same number of other heads of these layers are {effect} "
          "points", scale=100)
def half_learned_change_beyond_same_layers(model: str) -> Effect:
    """Score of the retrieval heads of a half-learned model after RetMask, minus that after masking
    others of the same layers, over the cases that both trained models solve."""
    found = half_learned()
    if found is None or found.done < found.planned:
        raise NotStored("not all planned runs on half-learned models are stored. They are made by "
                        "`rmutils run 09_data_and_training -p compute_half auto`.")
    cases = found.cases[found.cases["model"] == model]
    row, = compare_arms(cases, measure="retrieval").itertuples()
    return Effect(row.effect, row.low, row.high, SCORE, (HALF_LEARNED.name,),
                  cases["needle"].nunique(), f"interval over needles and {row.seeds} seeds")


@quantity("{strategy} changes the share of needles that {model} finds by {effect} percentage "
          "points", scale=100)
def needles_found_change(model: str, strategy: str = RETMASK) -> Effect:
    """Change of the share of needles found by a training, on the grid of the detection."""
    runs = trainings(model, strategy)
    blind = blind_spot(100 * runs[0].before.cases["success"].mean(), 0, "needles found")
    return _row(needles_found(_pairs(runs)), "change", "share of needles", runs, blind=blind)


@cache
def trainings(model: str, strategy: str, **changes: object) -> list[RetMaskRun]:
    """All runs of a strategy that were planned, by seed. They are read once."""
    configs = [config.changed(changes) for config in planned_runs(model)
               if config.strategy == strategy]
    runs, missing = stored_runs(model, configs)
    if missing:
        raise NotStored(f"{len(missing)} of the {len(configs)} runs of {strategy} planned on "
                        f"{model} have not been run. The first is made by `{missing[0]}`.")
    return runs


def _retrieval_heads(run: RetMaskRun) -> list[tuple[int, int]]:
    return run.before.select(tau=run.artifact.manifest["config"]["tau"])


def _pairs(runs: list[RetMaskRun]) -> list[PairedDetection]:
    return [PairedDetection(run.before, run.after, _retrieval_heads(run)) for run in runs]


def _change(
    model: str, group: str, quantity: str, unit: str, strategy: str = RETMASK,
    cases: Cases = "both",
) -> Effect:
    """A change in the heads that RetMask masks, over cases that are successful both times."""
    runs = trainings(model, strategy)
    pairs = [PairedDetection(run.before, run.after, _retrieval_heads(ours))
             for run, ours in zip(runs, trainings(model, RETMASK), strict=False)]
    # Two seeds do not tell how much training runs differ.
    table = training_effect(pairs, cases=cases, drawn=model not in TRAINED)
    before = table[(table["group"] == (ALL if group == ALL else RETRIEVAL))
                   & (table["quantity"] == "before")].iloc[0]["value"]
    full = before > 1 - MARGIN / 100
    effect = _row(table, quantity, unit, runs, group, f"the heads score {before:.2f} of 1 before "
                f"training, so they cannot rise by {MARGIN / 100:g}" if full else "")
    return replace(effect, note=f"{effect.note}, interval over needles"
                   ) if model in TRAINED else effect


def _row(
    table: pd.DataFrame, quantity: str, unit: str, runs: list[RetMaskRun],
    group: str | None = None, blind: str = "",
) -> Effect:
    chosen = table[table["quantity"] == quantity]
    row = (chosen if group is None else chosen[chosen["group"] == group]).iloc[0]
    return Effect(row["value"], row["low"], row["high"], unit,
                  tuple(run.artifact.name for run in runs),
                  runs[0].before.cases["needle"].nunique(),
                  seeds_said(run.artifact.manifest["config"]["seed"] for run in runs), blind)


def seeds_said(seeds: Iterable[int]) -> str:
    """As `5 seeds`."""
    count = len({*seeds})
    return f"{count} seeds" if count > 1 else "one training"
