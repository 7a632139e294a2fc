"""The abilities that chapter 7 shows: of the models before and after the book's own trainings."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from rmutils.artifacts import Artifact, Compute, find
from rmutils.errors import NotStored
from rmutils.evaluation.general.abilities import General, GeneralConfig
from rmutils.evaluation.general.store import evaluate_general_stored
from rmutils.models.loading import corpus_of
from rmutils.training.again import train_again
from rmutils.training.collect import stored_runs
from rmutils.training.planned import BEFORE, planned
from rmutils.training.retmask import RetMaskRun

Result = tuple[General, Artifact]
_CONFIGS = {"world": GeneralConfig(samples=480), "book": GeneralConfig()}
"""Corpus -> what is asked. Teaching models answer so fast that they can be asked more."""


def planned_abilities(model: str) -> GeneralConfig:
    """What a model and its trainings are asked."""
    return _CONFIGS[corpus_of(model)]


@dataclass(frozen=True)
class Abilities:
    """Results of a model and its trainings.

    Attributes
    ----------
    samples : DataFrame
        `strategy` (`before`, or a key of `STRATEGIES`), `seed` (of the training), and the columns
        of `General.samples`.
    drift : DataFrame
        `strategy`, `seed`, and the columns of `General.drift`; nothing for the model before.
    artifacts : dict
        (strategy, seed) -> where it is stored.
    missing : list of str
        Command lines that make what is missing: results, and the trainings that they wait for.
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

    Trainings whose runs are stored (`rmutils retmask`) but whose weights are not are made anew from
    their stored pairs.
    """
    def evaluate(run: RetMaskRun | None, config: GeneralConfig) -> Result:
        try:
            return _evaluate(model, run, config, "never")
        except NotStored:
            if run and find(run.training) is None:
                train_again(model, run)
            return _evaluate(model, run, config, "auto", workers)

    return _collect(model, evaluate)


def _evaluate(
    model: str, run: RetMaskRun | None, config: GeneralConfig, compute: Compute, workers: int = 1
) -> Result:
    return evaluate_general_stored(run.training if run else model, config, compute=compute,
                                   base=model if run else None, command=_command(model),
                                   workers=workers)


def _command(model: str) -> str:
    return shlex.join(["rmutils", "abilities", model, "--trainings"])


def _collect(
    model: str, evaluate: Callable[[RetMaskRun | None, GeneralConfig], Result]
) -> Abilities:
    config, missing = planned_abilities(model), []
    runs: list[tuple[str, int, RetMaskRun | None]] = [(BEFORE, 0, None)]
    for wanted in planned(model):
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
    samples, drift = (pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
                      for parts in tables.values())
    return Abilities(samples, drift, artifacts, list(dict.fromkeys(missing)))
