"""Evaluations as stored results, of models and of stored trainings."""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pandas as pd

from rmutils.artifacts import Artifact, Compute, Stage, find, stored
from rmutils.errors import UserError
from rmutils.evaluation.longcontext.judge import GradingJudge
from rmutils.evaluation.longcontext.run import evaluate
from rmutils.evaluation.longcontext.settings import EvaluateConfig
from rmutils.models import LanguageModel, identify, load_model
from rmutils.training.store import TRAIN, load_trained

EVALUATION = Stage("evaluation", version=1)
JOURNAL = ".journal.jsonl"
TRAINING = re.compile(rf"{TRAIN.name}-[0-9a-f]{{16}}")
"""Names of stored trainings."""


def evaluate_stored(
    model: LanguageModel | str, config: EvaluateConfig = EvaluateConfig(), *,
    judge: GradingJudge | None = None, compute: Compute = "auto",
) -> tuple[pd.DataFrame, Artifact]:
    """`evaluate`, but a result that is stored already is read instead; a stopped run goes on.

    Parameters
    ----------
    model : LanguageModel or str
        A name is enough: the model is loaded only if the result has to be computed. It may also be
        that of a stored training (`train-...`, as `rmutils retmask` prints it), whose evaluation
        can be read where its weights are not.
    config : EvaluateConfig
    judge : GradingJudge, optional
    compute : {"auto", "always", "never"}

    Returns
    -------
    DataFrame, Artifact
        As from `evaluate`, and where it is kept.
    """
    named = isinstance(model, str)

    def make(folder: Path) -> dict:
        lm = load(model) if named else model
        table = evaluate(lm, config, journal=folder / JOURNAL, judge=judge)
        table.to_parquet(folder / "scores.parquet", index=False)
        return {"answers": len(table.drop_duplicates(["dataset", "length", "sample"])),
                "unscored": int(table["unscored"].sum())}

    inputs = {"model": identity_of(model) if named else model.identity}
    if judge:
        inputs["judge"] = judge.identity
    artifact = EVALUATION.obtain(config, inputs, make, compute=compute, command=command_of(
        model if named else model.name, config, judge))
    return pd.read_parquet(artifact.path("scores.parquet")), artifact


def identity_of(name: str) -> str:
    """What a model's results depend on: its weights, or a training's name, which tells all that
    they are made from."""
    return name if TRAINING.fullmatch(name) else identify(name)


def load(name: str) -> LanguageModel:
    """A model by its name, or a stored training's.

    Raises
    ------
    UserError
        Its weights are not here; with the command that makes them, if it is known.
    """
    if not TRAINING.fullmatch(name):
        return load_model(name)
    artifact = find(name)
    if artifact is None:
        commands = [run.manifest["command"] for run in stored() if run.name.startswith("retmask-")
                    and json.loads(run.path("run.json").read_text())["training"] == name]
        how = f" `{commands[0]}` made them." if commands else ""
        raise UserError(f"the weights of {name} are not stored on this machine.{how}")
    adapter = artifact.path("adapter_config.json")
    if adapter.exists():
        base = load_model(json.loads(adapter.read_text())["base_model_name_or_path"])
        lm = load_trained(base, artifact.folder)
    else:
        lm = load_model(str(artifact.folder))
    return replace(lm, name=name, identity=name)


def command_of(name: str, config: EvaluateConfig, judge: GradingJudge | None = None) -> str:
    """The command line that makes this result. Paths are relative to the working directory."""
    words = ["rmutils", "evaluate", os.path.relpath(name) if Path(name).exists() else name]
    for field, text in config.differences(EvaluateConfig()).items():
        value = getattr(config, field)
        if isinstance(value, bool):
            words.append(f"--{'' if value else 'no-'}{field}")
        else:
            words += [f"--{field}", ",".join(map(str, value)) if isinstance(value, tuple) else text]
    if judge:
        words += ["--judge", judge.server.url, "--judge-model", judge.server.name]
    return shlex.join(words)
