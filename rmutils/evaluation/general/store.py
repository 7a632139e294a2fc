"""Abilities as stored results, of models and of trainings whose weights may be elsewhere."""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from pathlib import Path

import pandas as pd

from rmutils.artifacts import Artifact, Compute, Stage, find
from rmutils.config import Config, digest
from rmutils.corpora.haystack import load_haystacks
from rmutils.errors import UserError
from rmutils.evaluation.general.abilities import General, GeneralConfig, evaluate_general
from rmutils.models import REGISTRY, LanguageModel, identify, load_model
from rmutils.models.loading import corpus_of
from rmutils.paths import CORPORA
from rmutils.training.running import RECORD
from rmutils.training.store import TRAIN, load_trained

GENERAL = Stage("general", version=1)
JOURNAL = ".journal.jsonl"
TABLES = ("samples", "drift")


def is_training(model: str) -> bool:
    """Whether a name is that of a stored training, such as `train-0123456789abcdef`."""
    return re.fullmatch(rf"{TRAIN.name}-[0-9a-f]{{16}}", model) is not None


def base_of(training: str) -> str:
    """The model that a stored training began with.

    Raises
    ------
    UserError
        The training is not stored on this machine, or began with a folder, whose place it does not
        know.
    """
    name = json.loads(_stored(training).path(RECORD).read_text())["model"]
    if name not in REGISTRY and "/" not in name:
        raise UserError(f"{training} began with a folder called {name}. Say where it is: --base.")
    return name


def load_any(model: str, base: str | None = None) -> LanguageModel:
    """A model by its name, or by that of a stored training and the model that it began with."""
    if not is_training(model):
        return load_model(model)
    return load_trained(load_model(base or base_of(model)), _stored(model).folder)


def _stored(training: str) -> Artifact:
    if artifact := find(training):
        return artifact
    raise UserError(f"the training {training} is not stored on this machine, and the weights of "
                    f"trainings do not ship. Trainings of the book are made anew by `rmutils "
                    f"abilities MODEL --trainings`, others by the command that made them.")


def evaluate_general_stored(
    model: str, config: GeneralConfig = GeneralConfig(), *, base: str | None = None,
    compute: Compute = "auto", command: str | None = None,
) -> tuple[General, Artifact]:
    """`evaluate_general` of a model by its name, but a stored result is read instead.

    Parameters
    ----------
    model : str
        Registry name, folder, hub id, or the name of a stored training (as in `RetMaskRun.training`
        and `rmutils retmask`), whose weights are needed only if the result has to be computed.
    base : str, optional
        The model that it was trained from. Default: the one that a stored training began with.
    compute : {"auto", "always", "never"}
    command : str, optional
        The command line that makes this result, if it is another than that of `command_of`.

    Raises
    ------
    UserError
        Nothing stored and `compute="never"`, the training is not stored, or as of
        `evaluate_general`.
    """
    if base is None and is_training(model):
        base = base_of(model)
    corpus = corpus_of(base or model)

    def make(folder: Path) -> dict:
        result = evaluate_general(
            load_any(model, base), config, base=load_model(base) if base else None,
            journal=folder / JOURNAL)
        for table in TABLES:
            getattr(result, table).to_parquet(folder / f"{table}.parquet", index=False)
        return {"questions": len(result.samples), "passages": len(result.drift)}

    inputs = {"model": model if is_training(model) else identify(model),
              "questions": _digest(config, corpus)}
    if base:
        inputs |= {"base": identify(base), "texts": digest(
            [haystack.text for haystack in load_haystacks(CORPORA[corpus] / "haystack")])}
    artifact = GENERAL.obtain(config, inputs, make, compute=compute,
                              command=command or command_of(model, config, base))
    return General(*(pd.read_parquet(artifact.path(f"{t}.parquet")) for t in TABLES)), artifact


@cache
def _digest(config: GeneralConfig, corpus: str) -> str:
    """Of all questions with their right answers and options."""
    return digest([[name, item.prompt, item.right, item.options]
                   for name, (_, items) in config.items(corpus).items() for item in items])


def command_of(model: str, config: Config, base: str | None = None) -> str:
    """The command line that makes a result."""
    words = ["rmutils", "abilities", model]
    if base and not is_training(model):
        words += ["--base", base]
    for name, value in config.differences(type(config)()).items():
        words += ["-p", name, value]
    return shlex.join(words)
