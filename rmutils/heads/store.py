"""Detections as stored results: looked up where possible, computed once where not."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors.numpy import load_file, save_file

from rmutils.artifacts import Artifact, Compute, Stage
from rmutils.config import digest
from rmutils.heads.detection import DetectConfig, detect, material
from rmutils.heads.scores import HeadScores
from rmutils.models import LanguageModel, identify, load_model
from rmutils.models.loading import corpus_of
from rmutils.models.support import check

DETECT = Stage("detect", version=1)
JOURNAL = ".journal.jsonl"


def detect_stored(
    model: LanguageModel | str, config: DetectConfig = DetectConfig(), *,
    compute: Compute = "auto", named: str | None = None,
) -> tuple[HeadScores, Artifact]:
    """`detect`, but a result that is stored already is read instead.

    A run that was stopped goes on case by case.

    Parameters
    ----------
    model : LanguageModel or str
        A name is enough: the model is loaded only if the result has to be computed.
    config : DetectConfig
    compute : {"auto", "always", "never"}
    named : str, optional
        The name or folder that a model was loaded by, for the command that makes the result.

    Returns
    -------
    HeadScores, Artifact
        The scores and where they are kept.

    Raises
    ------
    UserError
        As of `detect`; or the model is of a kind whose heads cannot be watched.
    """
    name, identity, corpus = ((model, identify(model), corpus_of(model)) if isinstance(model, str)
                              else (model.name, model.identity, model.corpus))

    def make(folder: Path) -> dict:
        lm = load_model(model) if isinstance(model, str) else model
        check(lm)
        scores = detect(lm, config, journal=folder / JOURNAL)
        save(scores, folder)
        return {"cases": len(scores.cases), "successful": len(scores.runs),
                "case_seconds": round(float(scores.cases["seconds"].sum()), 1)}

    artifact = DETECT.obtain(config, inputs_of(identity, config, corpus), make, compute=compute,
                             command=command_of(named or name, config))
    return load(artifact.folder, name), artifact


def inputs_of(identity: str, config: DetectConfig, corpus: str) -> dict[str, str]:
    """What a detection depends on besides its configuration: weights, haystack and needles."""
    haystacks, needles = material(config, corpus)
    return {"model": identity, "haystack": digest([[h.name, h.text] for h in haystacks]),
            "needles": digest([vars(n) for n in needles])}


def command_of(name: str, config: DetectConfig) -> str:
    """The command line that makes this result. Paths are relative to the working directory."""
    default = DetectConfig()
    words = ["rmutils", "detect", os.path.relpath(name) if Path(name).exists() else name]
    for field, value in config:
        if value != getattr(default, field):
            shown = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            shown = os.path.relpath(value) if isinstance(value, Path) else shown
            words += [f"--{field.replace('_', '-')}", shown]
    return shlex.join(words)


def save(scores: HeadScores, folder: Path) -> None:
    """Write `cases.parquet` and `scores.safetensors`."""
    scores.cases.to_parquet(folder / "cases.parquet", index=False)
    save_file({"runs": np.ascontiguousarray(scores.runs)}, folder / "scores.safetensors")


def load(folder: Path, model: str) -> HeadScores:
    """Read what `save` wrote."""
    cases = pd.read_parquet(folder / "cases.parquet")
    runs = load_file(folder / "scores.safetensors")["runs"]
    return HeadScores(runs, model, cases["needle"].to_numpy()[cases["success"]], cases)
