"""Where scores of models before and after their trainings are stored: the one place that knows.

All planned seeds of a strategy count, or none (see `rmutils.paper.effects.head_effects`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pandas as pd

from rmutils.core.errors import NotStored
from rmutils.evaluation.abilities.evaluate_abilities import evaluate_general_stored
from rmutils.evaluation.helmet import EvaluateConfig, evaluate_stored
from rmutils.evaluation.helmet.averages import samples_of
from rmutils.experiments.general_abilities import planned_abilities
from rmutils.models.loading import corpus_of
from rmutils.paper.effects.head_effects import RETMASK, trainings
from rmutils.pipeline.planned_runs import BEFORE

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
