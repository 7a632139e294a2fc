"""Answers of one model by several processes, each of which takes every n-th data set and length."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from rmutils.evaluation.longcontext.run import answer, prompters_of
from rmutils.evaluation.longcontext.settings import EvaluateConfig
from rmutils.journal import Journal
from rmutils.training.by_name import load_by_name
from rmutils.workers import side_by_side


def answer_side_by_side(
    model: str, config: EvaluateConfig, journal: Path, workers: int
) -> None:
    """Fill a journal with the answers of a model.

    Parameters
    ----------
    model : str
        As for `rmutils.training.by_name.load_by_name`.
    journal : Path
        As for `rmutils.evaluation.longcontext.evaluate`, which then only has to score. What is
        there already, also of workers that were stopped, is not asked again.
    workers : int
        Processes. Each has a model of its own.

    Raises
    ------
    UserError
        As of `evaluate`; or a worker was stopped.
    """
    side_by_side(partial(_work, model, config), journal, workers, f"evaluation of {model}",
                 len(config.lengths) * len(config.datasets) * config.samples)


def _work(
    model: str, config: EvaluateConfig, kept: Journal, share: slice, done: Callable[[float], None]
) -> None:
    for prompter in prompters_of(load_by_name(model), config)[share]:
        answer(prompter, config, kept, done)
