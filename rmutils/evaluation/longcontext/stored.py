"""Evaluations as stored results, of models and of stored trainings."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pandas as pd

from rmutils.artifacts import Artifact, Compute, Stage
from rmutils.errors import UserError
from rmutils.evaluation.longcontext.judge import GradingJudge
from rmutils.evaluation.longcontext.run import evaluate
from rmutils.evaluation.longcontext.settings import EvaluateConfig
from rmutils.evaluation.longcontext.workers import evaluate_side_by_side
from rmutils.models import LanguageModel
from rmutils.training.by_name import identity_of, load_by_name

EVALUATION = Stage("evaluation", version=1)
JOURNAL = ".journal.jsonl"


def evaluate_stored(
    model: LanguageModel | str, config: EvaluateConfig = EvaluateConfig(), *,
    judge: GradingJudge | None = None, compute: Compute = "auto", workers: int = 1,
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
    workers : int
        Processes that answer side by side, if the model is given by its name, but not more than
        there are data sets and lengths: the result is the same, byte for byte. More than one must
        not be asked for by a script without `if __name__ == "__main__"`, which each would run anew.

    Returns
    -------
    DataFrame, Artifact
        As from `evaluate`, and where it is kept.

    Raises
    ------
    UserError
        Not stored and `compute="never"`; the judge could not be asked; or as of `evaluate`.
    """
    named = isinstance(model, str)
    shares = min(workers, config.parts)

    def make(folder: Path) -> dict:
        several = named and shares > 1
        if several:
            table = evaluate_side_by_side(model, config, folder / JOURNAL, shares)
        if judge or not several:  # a judge is asked by one process only
            lm = load_by_name(model) if named else model
            table = evaluate(lm, config, journal=folder / JOURNAL, judge=judge)
        if judge and judge.trouble:
            raise UserError(f"{judge.trouble} All answers are kept: the same command goes on.")
        table.to_parquet(folder / "scores.parquet", index=False)
        return {"answers": len(table.drop_duplicates(["dataset", "length", "sample"])),
                "unscored": int(table["unscored"].sum())}

    inputs = {"model": identity_of(model) if named else model.identity}
    if judge:
        inputs["judge"] = judge.identity
    artifact = EVALUATION.obtain(config, inputs, make, compute=compute, command=command_of(
        model if named else model.name, config, judge))
    return pd.read_parquet(artifact.path("scores.parquet")), artifact


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
