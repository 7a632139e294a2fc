"""Abilities after trainings against those before, on the same questions."""

from __future__ import annotations

import pandas as pd

from rmutils.comparisons import bootstrap_mean, compare, holm
from rmutils.evaluation.general.drift import drift_table
from rmutils.stats import cluster_bootstrap, percentiles

ALL = "mean of the tasks"


def ability_table(samples: pd.DataFrame, by: str = "task") -> pd.DataFrame:
    """Mean scores.

    Parameters
    ----------
    samples : DataFrame
        `task`, `sample`, `score`, and the column `by`. Unscored samples (NaN) are left out and
        counted.

    Returns
    -------
    DataFrame
        The column `by`, `samples` (scored ones), `unscored`, `value`, `low`, `high` (95 % bootstrap
        over samples; NaN if none is scored).
    """
    rows = []
    for name, part in samples.groupby(by, sort=False):
        scores = part["score"].dropna().to_numpy()
        low, high = percentiles(cluster_bootstrap(scores, None)) if len(scores) else (None, None)
        rows.append((name, len(scores), len(part) - len(scores),
                     scores.mean() if len(scores) else None, low, high))
    columns = [by, "samples", "unscored", "value", "low", "high"]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[3:], float))


def means_by_strategy(samples: pd.DataFrame) -> pd.DataFrame:
    """Mean score of each task under each strategy, with intervals over samples and seeds.

    Parameters
    ----------
    samples : DataFrame
        As in `rmutils.evaluation.general.planned.Abilities`.

    Returns
    -------
    DataFrame
        `strategy`, `task`, `seeds`, `value`, `low`, `high`.
    """
    rows = []
    for (strategy, task), part in samples.groupby(["strategy", "task"], sort=False):
        scores = part.pivot(index="sample", columns="seed", values="score").dropna().to_numpy()
        drawn = bootstrap_mean(scores)
        rows.append((strategy, task, scores.shape[1], drawn[0], *percentiles(drawn[1:])))
    return pd.DataFrame(rows, columns=["strategy", "task", "seeds", "value", "low", "high"])


def changes(samples: pd.DataFrame, base: str) -> pd.DataFrame:
    """What became of each task, and of their plain mean, under each strategy.

    Parameters
    ----------
    samples : DataFrame
        As in `rmutils.evaluation.general.planned.Abilities`.
    base : str
        The strategy to compare with.

    Returns
    -------
    DataFrame
        `task` and the columns of `rmutils.comparisons.compare`; its `p_holm` is corrected over
        strategies and tasks, and over strategies for the mean of the tasks.
    """
    per_task = pd.concat([compare(part, base).assign(task=task)
                          for task, part in samples.groupby("task", sort=False)])
    per_task["p_holm"] = holm(per_task["p"])
    overall = compare(samples.rename(columns={"task": "stratum"}), base).assign(task=ALL)
    found = pd.concat([overall, per_task], ignore_index=True)
    return found[["task", *found.columns.drop("task")]]


def drift_by_strategy(drift: pd.DataFrame) -> pd.DataFrame:
    """`rmutils.evaluation.general.drift.drift_table` for each strategy, over all its seeds."""
    return pd.concat([drift_table(part).assign(strategy=strategy)
                      for strategy, part in drift.groupby("strategy", sort=False)],
                     ignore_index=True)
