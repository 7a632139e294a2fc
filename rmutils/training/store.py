"""Trainings as stored results: looked up where possible, run once where not."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import torch

from rmutils.artifacts import Artifact, Compute
from rmutils.models import LanguageModel
from rmutils.training.encoding import digest_of
from rmutils.training.launching import launch
from rmutils.training.loading import TRAIN, load_trained
from rmutils.training.means import Launch
from rmutils.training.recipes import TrainRecipe
from rmutils.training.running import train


def train_stored(
    lm: LanguageModel, pairs: pd.DataFrame, recipe: TrainRecipe, *, compute: Compute = "auto",
    command: str = "rmutils train MODEL PAIRS --out FOLDER", named: str | None = None,
    means: Launch | None = None,
) -> tuple[LanguageModel, Artifact]:
    """`train`, but a training that is stored already is read instead; a stopped one goes on.

    Parameters
    ----------
    lm : LanguageModel
        Stays as it is.
    pairs : DataFrame
        Columns `prompt`, `chosen`, `rejected`.
    recipe : TrainRecipe
    command : str
        The command line that makes this result.
    named : str, optional
        What `load_model` takes for the model, if other processes are to train it.
    means : Launch, optional
        How they share the training. None: it takes this process.

    Returns
    -------
    LanguageModel, Artifact
        The trained model, and where its weights (or adapter) and its curve are kept.
    """
    def make(folder: Path) -> dict:
        if means:
            device = lm.model.device
            lm.model.to("cpu")  # its GPU is wanted
            torch.cuda.empty_cache()
            launch(named, pairs, recipe, folder, means)
            lm.model.to(device)
        else:
            train(lm, pairs, recipe, folder)
        return {"pairs": len(pairs)}

    inputs = {"model": lm.identity, "pairs": digest_of(pairs)}
    artifact = TRAIN.obtain(recipe, inputs, make, compute=compute, command=command)
    return load_trained(lm, artifact.folder), artifact
