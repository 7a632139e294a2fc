"""Abilities after trainings against those before, on the same questions.

The abilities that chapter 7 shows: of the models before and after the book's own trainings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pandas as pd

from rmutils.book.experiments.planned_runs import BEFORE, planned_runs, retrain, stored_runs
from rmutils.core.config import command_line
from rmutils.core.errors import NotStored
from rmutils.core.results import Artifact, Compute, find
from rmutils.evaluation.abilities.evaluate_abilities import (
    General,
    GeneralConfig,
    drift_table,
    evaluate_general_stored,
)
from rmutils.models.loading import corpus_of
from rmutils.pipeline.retmask import RetMaskRun
from rmutils.stats import MORE_POINTS, POINTS, compare, holm, interval

ALL = "mean of the tasks"


def ability_table(samples: pd.DataFrame, by: str = "task") -> pd.DataFrame:
    """Mean scores.

    `samples`: `task`, `sample`, `score`, and the column `by`. Unscored samples (NaN) are left out
    and counted.
    Result: The column `by`, `samples` (scored ones), `unscored`, `value`, `low`, `high` (95 %
    bootstrap over samples; NaN if none is scored).
    """
    rows = []
    for name, part in samples.groupby(by, sort=False):
        scores = part["score"].dropna()
        rows.append((name, len(scores), len(part) - len(scores),
                     *(interval(scores, bounds=POINTS) if len(scores) else [None] * 3)))
    columns = [by, "samples", "unscored", "value", "low", "high"]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[3:], float))


def means_by_strategy(samples: pd.DataFrame) -> pd.DataFrame:
    """Mean score of each task under each strategy, with intervals over samples and seeds.

    Columns: `strategy`, `task`, `seeds`, `value`, `low`, `high`.
    """
    rows = []
    for (strategy, task), part in samples.groupby(["strategy", "task"], sort=False):
        scores = part.pivot(index="sample", columns="seed", values="score").dropna().to_numpy()
        rows.append((strategy, task, scores.shape[1],
                     *interval(scores, seeds=True, bounds=POINTS)))
    return pd.DataFrame(rows, columns=["strategy", "task", "seeds", "value", "low", "high"])


def at_a_constant(samples: pd.DataFrame, constant: Mapping[str, float]) -> list[str]:
    """List the tasks in which a model is not surely above a constant answer before training.

    `constant`: Task -> what a constant answer gets, in points.
    """
    before = means_by_strategy(samples[samples["strategy"] == BEFORE])
    return [row.task for row in before.itertuples() if row.low <= constant[row.task]]


def changes(samples: pd.DataFrame, base: str) -> pd.DataFrame:
    """Changes of each task, and of their plain mean, under each strategy.

    Columns: `task` and the columns of `rmutils.stats.compare`; its `p_holm` is corrected over
    strategies and tasks, and over strategies for the mean of the tasks.
    """
    per_task = pd.concat([compare(part, base, bounds=MORE_POINTS).assign(task=task)
                          for task, part in samples.groupby("task", sort=False)])
    per_task["p_holm"] = holm(per_task["p"])
    overall = compare(samples.rename(columns={"task": "stratum"}), base,
                      bounds=MORE_POINTS).assign(task=ALL)
    found = pd.concat([overall, per_task], ignore_index=True)
    return found[["task", *found.columns.drop("task")]]


def drift_by_strategy(drift: pd.DataFrame) -> pd.DataFrame:
    """`drift_table` for each strategy, over all its seeds."""
    return pd.concat([drift_table(part).assign(strategy=strategy)
                      for strategy, part in drift.groupby("strategy", sort=False)],
                     ignore_index=True)


Result = tuple[General, Artifact]
_CONFIGS = {"world": GeneralConfig(samples=480), "book": GeneralConfig()}
"""Corpus -> what is asked. Teaching models answer so fast that they can be asked more."""


def planned_abilities(model: str) -> GeneralConfig:
    """The questions for a model and its trainings."""
    return _CONFIGS[corpus_of(model)]


@dataclass(frozen=True)
class Abilities:
    """Results of a model and its trainings.

    `samples`: `strategy` (`before`, or a key of `STRATEGIES`), `seed` (of the training), and the
    columns of `General.samples`; of the tasks that all of them were asked.
    `drift`: `strategy`, `seed`, and the columns of `General.drift`; nothing for the model before.
    `artifacts`: (strategy, seed) -> where it is stored.
    `missing`: Command lines that make what is missing: results, and the trainings that they wait
    for.
    """

    samples: pd.DataFrame
    drift: pd.DataFrame
    artifacts: dict[tuple[str, int], Artifact]
    missing: list[str]


def stored_abilities(model: str) -> Abilities:
    """Read what is stored of the planned results of a model, and compute nothing."""
    return _collect(model, lambda run, config: _evaluate(model, run, config, "never"))


def evaluate_trainings(model: str, workers: int = 1) -> Abilities:
    """All planned results of a model: what is not stored is computed, by so many processes.

    Trainings whose runs are stored (`rmutils retmask`) but whose weights are not are trained again
    from their stored pairs.
    """
    def evaluate(run: RetMaskRun | None, config: GeneralConfig) -> Result:
        try:
            return _evaluate(model, run, config, "never")
        except NotStored:
            if run and find(run.training) is None:
                retrain(model, run)
            return _evaluate(model, run, config, "auto", workers)

    return _collect(model, evaluate)


def _evaluate(
    model: str, run: RetMaskRun | None, config: GeneralConfig, compute: Compute, workers: int = 1
) -> Result:
    return evaluate_general_stored(run.training if run else model, config, compute=compute,
                                   base=model if run else None, command=_command(model),
                                   workers=workers)


def _command(model: str) -> str:
    return command_line("abilities", model, "--trainings")


def _collect(
    model: str, evaluate: Callable[[RetMaskRun | None, GeneralConfig], Result]
) -> Abilities:
    config, missing = planned_abilities(model), []
    runs: list[tuple[str, int, RetMaskRun | None]] = [(BEFORE, 0, None)]
    for wanted in planned_runs(model):
        stored, lacking = stored_runs(model, [wanted])
        runs += [(wanted.strategy, wanted.seed, run) for run in stored]
        missing += lacking
    tables, artifacts = {"samples": [], "drift": []}, {}
    for strategy, seed, run in runs:
        try:
            result, artifacts[strategy, seed] = evaluate(run, config)
        except NotStored:
            missing.append(_command(model))
            continue
        for name, parts in tables.items():
            table = getattr(result, name)
            if len(table):
                parts.append(table.assign(strategy=strategy, seed=seed))
    if samples := tables["samples"]:  # a task may have been skipped where one of them was made
        of_all = set.intersection(*(set(part["task"]) for part in samples))
        tables["samples"] = [part[part["task"].isin(of_all)] for part in samples]
    samples, drift = (pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
                      for parts in tables.values())
    return Abilities(samples, drift, artifacts, list(dict.fromkeys(missing)))
