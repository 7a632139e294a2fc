"""Weights of stored runs, made anew: they are too large to ship, but the pairs are there."""

from __future__ import annotations

import json
from collections.abc import Collection

from rmutils.artifacts import Artifact, find, stored
from rmutils.models import load_model
from rmutils.training.means import Means
from rmutils.training.retmask import RETMASK, RetMaskConfig, RetMaskRun, recipe_of, run_retmask
from rmutils.training.store import train_stored


def train_again(model: str, run: RetMaskRun, means: Means = Means()) -> Artifact:
    """The training of a stored run once more, from its pairs, where its weights are not stored."""
    config = RetMaskConfig(**run.artifact.manifest["config"])
    return train_stored(load_model(model), run.pairs, recipe_of(config),
                        command=run.artifact.manifest["command"], named=model,
                        means=means.launch)[1]


def complete(model: str, trainings: Collection[str]) -> None:
    """Of some trainings of a model by name, those that have a stored run but no stored weights are
    made anew."""
    missing = {training for training in trainings if find(training) is None}
    for artifact in stored() if missing else ():
        if artifact.name.startswith(f"{RETMASK.name}-") and json.loads(
                artifact.path("run.json").read_text())["training"] in missing:
            config = RetMaskConfig(**artifact.manifest["config"])
            train_again(model, run_retmask(model, config, compute="never"))
