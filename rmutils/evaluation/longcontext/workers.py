"""An evaluation by several processes, each of which takes every n-th data set and length."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd

from rmutils.evaluation.longcontext.run import answered_and_scored, prompters_of
from rmutils.evaluation.longcontext.settings import EvaluateConfig
from rmutils.journal import Journal
from rmutils.training.by_name import load_by_name
from rmutils.workers import side_by_side


def evaluate_side_by_side(
    model: str, config: EvaluateConfig, journal: Path, workers: int
) -> pd.DataFrame:
    """`rmutils.evaluation.longcontext.evaluate` by rules, without a judge.

    Parameters
    ----------
    model : str
        As for `rmutils.training.by_name.load_by_name`.
    journal : Path
        Takes each answer when it is given. What is there already, also of workers that were
        stopped, is not asked again.
    workers : int
        Processes. Each has a model of its own.

    Raises
    ------
    UserError
        As of `evaluate`; or a worker was stopped.
    """
    shares = side_by_side(partial(_work, model, config), journal, workers,
                          f"evaluation of {model}", config.parts * config.samples)
    return pd.DataFrame([
        row for i in range(config.parts) for row in shares[i % workers][i // workers]])


def _work(
    model: str, config: EvaluateConfig, kept: Journal, share: slice, done: Callable[[float], None]
) -> list[list[dict]]:
    return [answered_and_scored(prompter, config, kept, done)
            for prompter in prompters_of(load_by_name(model), config)[share]]
