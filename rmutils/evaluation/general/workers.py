"""Abilities asked by several processes, each of which takes every n-th task and passage."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from rmutils.evaluation.general.abilities import GeneralConfig, parts_of
from rmutils.journal import Journal
from rmutils.models import load_model
from rmutils.models.loading import corpus_of
from rmutils.training.by_name import load_by_name
from rmutils.workers import side_by_side


def ask_side_by_side(
    model: str, config: GeneralConfig, base: str | None, journal: Path, workers: int
) -> None:
    """Fill the journal of `rmutils.evaluation.general.abilities.evaluate_general`.

    Parameters
    ----------
    model, base : str
        As for `rmutils.training.by_name.load_by_name`.
    workers : int
        Processes. Each has models of its own.

    Raises
    ------
    UserError
        As of `evaluate_general`; or a worker was stopped.
    """
    side_by_side(partial(_work, model, config, base), journal, workers, f"abilities of {model}",
                 config.questions(corpus_of(base or model), base), unit="questions")


def _work(
    model: str, config: GeneralConfig, base: str | None, kept: Journal, share: slice,
    done: Callable[[float], None],
) -> None:
    lm = load_by_name(model, base)
    for part in parts_of(lm, config, load_model(base) if base else None)[share]:
        part(kept, done)
