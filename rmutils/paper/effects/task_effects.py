"""Gains on long contexts (section 4) and losses of other abilities (5.1), in points of 0 to 100.

The average over categories is HELMET's: the plain mean of the categories, each the plain mean of
its data sets, which all have as many samples; the same at every length.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pandas as pd
from scipy.stats import pearsonr

from rmutils.core.errors import NotStored
from rmutils.evaluation.abilities.evaluate_abilities import evaluate_general_stored
from rmutils.evaluation.helmet import EvaluateConfig, evaluate_stored
from rmutils.evaluation.helmet.averages import samples_of
from rmutils.experiments.designs import correlations, design_stored, designs, points
from rmutils.experiments.general_abilities import ALL, changes, planned_abilities
from rmutils.experiments.masking_sweep import scored
from rmutils.experiments.sweep_questions import HAYSTACK
from rmutils.heads.sparsity import gini
from rmutils.models.loading import corpus_of
from rmutils.paper.effects.head_effects import RETMASK, answers_lost_at_tau, trainings
from rmutils.paper.verdicts import Effect, quantity
from rmutils.pipeline.planned_runs import BEFORE
from rmutils.stats import RELATIVE, Interval, draws, interval, interval_of, paired

FEWER_PAIRS = "retmask, fewer pairs"
EVALUATIONS = {"world": EvaluateConfig(lengths=(256, 512, 1024, 2048), samples=20),
               "book": EvaluateConfig(lengths=(1024, 2048))}
"""Corpus of a model (`LanguageModel.corpus`) -> how it is evaluated: up to the window of a teaching
model, and a real one as far as two cores allow. Without thoughts; section 4.1 lets Qwen3 think."""
THINKING = EvaluateConfig(lengths=(512, 1024), samples=20, thinking=True)
"""How trainings that leave reasoning out are evaluated. Section 4.5: "with reasoning enabled"; its
figure has 128K only. Thoughts need room in the window."""
FEW = 18
"""Instructions where 512 are usual: as 10K are to 294K (section 4.3)."""


def scores_of(
    model: str, strategies: Sequence[str], config: EvaluateConfig | None = None
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Long-context scores of a model before and after trainings, for all planned seeds.

    Parameters
    ----------
    strategies : sequence of str
        `before`, keys of `rmutils.preference.strategies.STRATEGIES`, or `FEWER_PAIRS`.
    config : EvaluateConfig, optional
        The evaluation; None: that of the main tables.

    Returns
    -------
    DataFrame, tuple of str
        `strategy`, `seed`, and the columns of `samples_of`; names of the stored results.

    Raises
    ------
    NotStored
        Some of them are not stored; with the command that makes the first of these.
    """
    parts = [_scores(model, strategy, config) for strategy in strategies]
    return pd.concat([table for table, _ in parts]), tuple(n for _, names in parts for n in names)


@cache
def _scores(
    model: str, strategy: str, config: EvaluateConfig | None
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """`scores_of` one strategy; read once."""
    config = config or EVALUATIONS[corpus_of(model)]
    tables, names = [], []
    for seed, name in _trained(model, strategy):
        table, artifact = evaluate_stored(name, config, compute="never")
        tables.append(samples_of(table).assign(strategy=strategy, seed=seed))
        names.append(artifact.name)
    return pd.concat(tables), tuple(names)


def _trained(model: str, strategy: str) -> list[tuple[int, str]]:
    """Seeds and names of the models to be evaluated."""
    if strategy == BEFORE:
        return [(0, model)]
    changes = {"instructions": FEW} if strategy == FEWER_PAIRS else {}
    runs = trainings(model, RETMASK if changes else strategy, **changes)
    return [(run.artifact.manifest["config"]["seed"], run.training) for run in runs]


def general_scores_of(model: str) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Scores on tasks without long contexts, before and after RetMask, for all planned seeds.

    Returns
    -------
    DataFrame, tuple of str
        `strategy` (`before` or `retmask`), `seed`, and the columns of
        `rmutils.evaluation.abilities.evaluate_abilities.General.samples`; names of the stored
        results.

    Raises
    ------
    NotStored
        Some of them are not stored; with the command that makes them.
    """
    config, tables, names = planned_abilities(model), [], []
    trained = [(RETMASK, run.artifact.manifest["config"]["seed"], run.training)
               for run in trainings(model, RETMASK)]
    for strategy, seed, name in [(BEFORE, 0, model), *trained]:
        try:
            found, artifact = evaluate_general_stored(
                name, config, base=None if strategy == BEFORE else model, compute="never")
        except NotStored:
            raise NotStored(f"not all scores of {model} in general abilities are stored. They are "
                            f"made by `rmutils abilities {model} --trainings`.") from None
        tables.append(found.samples.assign(strategy=strategy, seed=seed))
        names.append(artifact.name)
    return pd.concat(tables), tuple(names)


POINTS = "points"


@quantity
def gain(model: str, strategy: str = RETMASK) -> Effect:
    """Score after a training minus that before it, average over categories and lengths."""
    return _less(model, strategy, BEFORE)


@quantity
def gain_at(model: str, length: int, strategy: str = RETMASK) -> Effect:
    """Score after a training minus that before it at one length, average over categories."""
    return _less(model, strategy, BEFORE, length=length)


@quantity
def gain_at_longest(model: str) -> Effect:
    """Score after RetMask minus that before it at the longest length, average over categories."""
    return gain_at(model, max(EVALUATIONS[corpus_of(model)].lengths))


@quantity
def lead(model: str, other: str) -> Effect:
    """Score after RetMask minus that after another training, over categories and lengths."""
    return _less(model, RETMASK, other)


@quantity
def lead_at(model: str, other: str, length: int) -> Effect:
    """Score after RetMask minus that after another training at one length, average over categories.
    """
    return _less(model, RETMASK, other, length=length)


@quantity
def category_gain(model: str, category: str) -> Effect:
    """Score after RetMask minus that before it in one category, average over lengths."""
    return _less(model, RETMASK, BEFORE, category=category)


@quantity
def relative_category_gain(model: str, category: str) -> Effect:
    """Gain by RetMask in one category, as a share of the score before, average over lengths."""
    (pairs, *groups), names = _side_by_side(model, RETMASK, BEFORE, category=category)
    drawn = draws(pairs, *groups, seeds=True)
    change = interval_of(drawn[:, 0] / drawn[:, 1] - 1, bounds=RELATIVE)
    return Effect.of(change, "share of the score before", names)


@quantity
def category_gain_beyond(model: str, *categories: str) -> Effect:
    """Mean gain by RetMask in some categories minus that in the others."""
    (pairs, clusters, strata), names = _side_by_side(model, RETMASK, BEFORE)
    inside, every = np.isin(strata, categories), len(np.unique(strata))
    chosen = len(np.unique(strata[inside]))
    weights = np.where(inside, every / chosen, -every / (every - chosen))
    gains = weights[:, None] * (pairs[..., 0] - pairs[..., 1])
    return Effect.of(interval(gains, clusters, strata, seeds=True), POINTS, names)


@quantity
def gain_beyond(model: str, other: str) -> Effect:
    """Gain by RetMask on one model minus that on another."""
    drawn, names = [], []
    for seed, name in enumerate((model, other)):  # chance is drawn for each by itself
        (pairs, *groups), stored = _side_by_side(name, RETMASK, BEFORE)
        drawn.append(draws(pairs[..., 0] - pairs[..., 1], *groups, seeds=True, seed=seed))
        names += stored
    return Effect.of(interval_of(drawn[0] - drawn[1]), POINTS, names)


@quantity
def gain_by_more_pairs(model: str) -> Effect:
    """Score after RetMask minus that after RetMask with a thirtieth of the pairs."""
    return _less(model, RETMASK, FEWER_PAIRS)


@quantity
def left_out(model: str, how: str, category: str | None = None) -> Effect:
    """Score after RetMask on pairs whose reasoning is left out (`removed` or `un-generated`) less
    that on whole pairs; both think when evaluated."""
    return _less(model, f"rc-{how}", RETMASK, config=THINKING, category=category)


@quantity
def gain_left_out(model: str, how: str) -> Effect:
    """Score after RetMask on pairs whose reasoning is left out (`removed` or `un-generated`) less
    that before training; both think when evaluated."""
    return _less(model, f"rc-{how}", BEFORE, config=THINKING)


@quantity
def gain_over_sparsity(*models: str) -> Effect:
    """Correlation (Pearson's) of the gain by RetMask with the Gini coefficient of the retrieval
    scores, over models; Fisher's interval."""
    return _over_sparsity(models, [gain(model) for model in models])


@quantity
def gain_over_designed_sparsity(statistic: str) -> Effect:
    """Correlation (Pearson's) of the gain by RetMask with a measure of sparsity
    (`rmutils.heads.sparsity.statistics`), over the models of `rmutils.experiments.designs`;
    Fisher's interval."""
    found = {name: design_stored(config, compute="never") for name, config in designs().items()}
    line = correlations(points(found, statistic)).iloc[0]
    return Effect(line["value"], line["low"], line["high"], "correlation",
                  tuple(design.artifact.name for design in found.values()))


@quantity
def loss_over_sparsity(*models: str) -> Effect:
    """Correlation (Pearson's) of the needles lost without the retrieval heads with the Gini
    coefficient of the retrieval scores, over models; Fisher's interval."""
    return _over_sparsity(models, [answers_lost_at_tau(model, HAYSTACK) for model in models])


def _over_sparsity(models: Sequence[str], effects: Sequence[Effect]) -> Effect:
    detections = [scored(model, compute="never") for model in models]
    found = pearsonr([gini(scores.mean) for scores, _ in detections], [e.value for e in effects])
    low, high = found.confidence_interval()
    names = [name for effect in effects for name in effect.artifacts]
    return Effect(float(found.statistic), float(low), float(high), "correlation",
                  (*names, *(artifact.name for _, artifact in detections)))


def _less(
    model: str, strategy: str, base: str, **chosen: str | int | EvaluateConfig | None
) -> Effect:
    (pairs, *groups), names = _side_by_side(model, strategy, base, **chosen)
    gained = interval(pairs[..., 0] - pairs[..., 1], *groups, seeds=True)
    return Effect.of(gained, POINTS, names)


def _side_by_side(
    model: str, strategy: str, base: str, *, config: EvaluateConfig | None = None,
    category: str | None = None, length: int | None = None,
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], tuple[str, ...]]:
    """As `rmutils.stats.paired`, of a category or a length, and names of stored results."""
    table, names = scores_of(model, (strategy, base), config)
    for column, wanted in (("stratum", category), ("length", length)):
        if wanted is not None:
            table = table[table[column] == wanted]
    return paired(table, strategy, base), names


@quantity
def general_change(model: str) -> Effect:
    """Score after RetMask minus that before it, plain mean of the tasks without long contexts."""
    table, names = general_scores_of(model)
    found = changes(table, BEFORE)
    mean = found[found["task"] == ALL].iloc[0]
    return Effect.of(Interval(mean["effect"], mean["low"], mean["high"]), POINTS, names)
