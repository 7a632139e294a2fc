"""Trainings that begin with a snapshot of a model's own, at which it finds part of the needles.

A finished teaching model finds nearly every needle, so no training can make it find many more. What
the experiments on snapshots share is here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol, TypeVar

import pandas as pd

from rmutils.core.errors import NotStored, UserError
from rmutils.core.results import Artifact
from rmutils.evaluation.answers import find_needles
from rmutils.heads import DetectConfig
from rmutils.models import LanguageModel, load_model
from rmutils.models.teaching import RECIPES, TeachingRecipe, steps_taken, train
from rmutils.pipeline.planned_runs import BEFORE
from rmutils.pipeline.retmask import RetMaskConfig, RetMaskSteps
from rmutils.training.compute_backend import ComputeBackend

RETMASK, MATCHED = "retmask", "layer-matched-non-retrieval-mask"


class NoSnapshot(UserError):
    """No look at a training found a share of the needles in the range."""


def find_snapshot(
    name: str, recipe: TeachingRecipe, home: Path, detect: DetectConfig, *, every: int,
    found: tuple[float, float],
) -> tuple[Path, int]:
    """Train until a look finds a share of the needles in a range; return the folder and the step.

    A training that was stopped goes on, with the first look that it has not passed yet.

    Parameters
    ----------
    name : str
        Of the model, for messages.
    home : Path
        Folder of the training.
    every : int
        Training steps between two looks.
    found : (float, float)
        The range, from 0 to 1.

    Raises
    ------
    NoSnapshot
        The model passes the range between two looks, or never reaches it.
    """
    for step in range(every, recipe.steps, every):
        if step < steps_taken(home):
            continue
        folder = train(recipe, home, until=step)
        share = find_needles(load_model(str(folder)), detect)["success"].mean()
        if found[0] <= share <= found[1]:
            return folder, step
        if share > found[1]:
            break
    raise NoSnapshot(f"{name} never found {found[0]:.0%} to {found[1]:.0%} of the needles when we "
                     f"looked: it is left out.")


def train_on_pairs(snapshot: Path, config: RetMaskConfig) -> LanguageModel:
    """Return a snapshot after a strategy's training, which is looked up if it is stored."""
    steps = RetMaskSteps(str(snapshot), config, ComputeBackend())
    pairs, _ = steps.pair(steps.mask())
    return steps.train(pairs.table)[0]


class Run(Protocol):
    """The configuration of a run: what begins, what is done to it, and settings with the seed."""

    @property
    def model(self) -> str: ...
    @property
    def arm(self) -> str: ...
    @property
    def retmask(self) -> RetMaskConfig: ...


R = TypeVar("R", bound=Run)


def collect(
    configs: Iterable[R], obtain: Callable[[R], Artifact]
) -> tuple[list[tuple[R, Artifact]], dict[str, str]]:
    """Look runs up, or make them; a model whose snapshot fails is left out.

    Returns
    -------
    list of (configuration, Artifact), dict of str to str
        The runs that are stored now; the models that were left out, and why.
    """
    runs: list[tuple[R, Artifact]] = []
    lost: dict[str, str] = {}
    for config in configs:
        if config.model in lost:
            continue
        try:
            runs.append((config, obtain(config)))
        except NotStored:
            continue
        except UserError as error:
            if config.arm != BEFORE:
                raise
            lost[config.model] = str(error)
    return runs, lost


def join_tables(runs: Iterable[tuple[Run, Artifact]], name: str) -> pd.DataFrame:
    """A table of all runs, with `model`, `arm` and `seed`."""
    return pd.concat([pd.read_parquet(artifact.path(f"{name}.parquet")).assign(
        model=config.model, arm=config.arm, seed=config.retmask.seed)
        for config, artifact in runs], ignore_index=True)


def from_other_layers(model: str, heads: Iterable[list[int]]) -> str:
    """Say how many heads of a layer-matched control have to come from another layer, because there
    are too few others in theirs; empty if none."""
    counts, of_layer = Counter(layer for layer, _ in heads), RECIPES[model].num_attention_heads
    lacking = sum(max(0, 2 * count - of_layer) for count in counts.values())
    return (f"On `{model}` {lacking} of the control's {counts.total()} heads come from "
            "another layer, so the comparison is no more than a hint there.") if lacking else ""
