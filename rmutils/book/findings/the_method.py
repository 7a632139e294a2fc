"""What the chapter on the method says: how often masking changes an answer, which answer moves."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Literal

import numpy as np

from rmutils.book.experiments.planned_runs import MODELS, RETMASK, planned_runs, stored_runs
from rmutils.book.findings.registry import SHOWN, Measured, declare
from rmutils.core.errors import NotStored
from rmutils.pipeline.retmask import RetMaskRun
from rmutils.stats import ANY, SHARE, Bounds, Interval, interval

LAST_STEPS = 5
"""Steps at the end of a training over which log-probabilities are averaged: a batch says little."""


@cache
def runs_of(model: str) -> list[RetMaskRun]:
    """Look up the planned runs of RetMask on a model."""
    runs, missing = stored_runs(model, [c for c in planned_runs(model) if c.strategy == RETMASK])
    if not runs:
        raise NotStored(f"No run of RetMask on {model} is stored. `{missing[0]}` makes one.")
    return runs


def _over_runs(
    model: str, measure: Callable[[RetMaskRun], float], bounds: Bounds
) -> tuple[Interval, list[str]]:
    runs = runs_of(model)
    return (interval([measure(run) for run in runs], bounds=bounds),
            [run.artifact.name for run in runs])


@declare("instructions-that-become-pairs", unit="percent", place="fig-method", otherwise=(
    "Masking the retrieval heads of {model} changes the answer to {value} % of the instructions "
    "{ci}."))
def instructions_that_become_pairs(model: str) -> Measured:
    """Share of instructions whose two answers differ; over runs."""
    def share(run: RetMaskRun) -> float:
        return len(run.pairs) / int(run.artifact.manifest["config"]["instructions"])

    found, names = _over_runs(model, share, SHARE)
    return Measured(Interval(*(100 * end for end in found)), names, len(names), verdict=SHOWN,
                    words={"model": model})


@declare("answers-move", unit="nats", place="fig-first-steps", otherwise=(
    "Training {model} changes the log-probability of {side} answers by {value} nats {ci}: "
    "{verdict}."))
def answers_move(model: str, side: Literal["chosen", "rejected"]) -> Measured:
    """Change of the log-probability of an answer by the end of a training; over runs."""
    def change(run: RetMaskRun) -> float:
        beta = float(run.artifact.manifest["config"]["recipe"]["beta"])
        return float(run.curve[f"{side}_reward"].tail(LAST_STEPS).mean()) / beta

    found, names = _over_runs(model, change, ANY)
    return Measured(found, names, len(names), words={"model": model, "side": side})


def first_losses() -> dict[str, float]:
    """Return the largest distance of a first loss from log 2, by the precision of the training."""
    found: dict[str, float] = {}
    for model in MODELS:
        for run in runs_of(model):
            precision = run.artifact.manifest["config"]["recipe"]["precision"]
            found[precision] = max(found.get(precision, 0.0),
                                   abs(float(run.curve["loss"].iloc[0]) - float(np.log(2))))
    return found
