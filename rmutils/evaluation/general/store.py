"""Abilities as stored results, of models and of trainings whose weights may be elsewhere."""

from __future__ import annotations

import shlex
from functools import cache
from pathlib import Path

import pandas as pd

from rmutils.artifacts import Artifact, Compute, Stage
from rmutils.config import Config, digest
from rmutils.corpora.haystack import load_haystacks
from rmutils.evaluation.general.abilities import General, GeneralConfig, evaluate_general
from rmutils.evaluation.general.workers import ask_side_by_side
from rmutils.models import identify, load_model
from rmutils.models.loading import corpus_of
from rmutils.paths import CORPORA
from rmutils.training.by_name import base_of, identity_of, is_training, load_by_name

GENERAL = Stage("general", version=1)
JOURNAL = ".journal.jsonl"
TABLES = ("samples", "drift")


def evaluate_general_stored(
    model: str, config: GeneralConfig = GeneralConfig(), *, base: str | None = None,
    compute: Compute = "auto", command: str | None = None, workers: int = 1,
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

    workers : int
        Processes that answer side by side: the result is the same, byte for byte. More than one
        must not be asked for by a script without `if __name__ == "__main__"`, which each would run
        anew.

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
        if workers > 1:
            ask_side_by_side(model, config, base, folder / JOURNAL, workers)
        result = evaluate_general(
            load_by_name(model, base), config, base=load_model(base) if base else None,
            journal=folder / JOURNAL)
        for table in TABLES:
            getattr(result, table).to_parquet(folder / f"{table}.parquet", index=False)
        return {"questions": len(result.samples), "passages": len(result.drift)}

    inputs = {"model": identity_of(model),
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
