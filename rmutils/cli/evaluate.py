"""The command that scores a model on long contexts: `rmutils evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from rmutils.cli import options
from rmutils.cli.from_configs import Part, configured
from rmutils.core.journal import default_workers
from rmutils.evaluation.helmet import EvaluateConfig, averages, evaluate_stored
from rmutils.evaluation.helmet.metrics import GradingJudge
from rmutils.heads import HeadScores
from rmutils.models.known_models import tau_of
from rmutils.preference.judges import GEMMA, ServerJudge
from rmutils.stats import span

Judge = Annotated[str | None, typer.Option(
    metavar="URL", help="A server with OpenAI's interface that grades free answers.")]
JudgeModel = Annotated[str | None, typer.Option(
    help="The model that it serves.", show_default=GEMMA)]


@configured(changes=Part(EvaluateConfig(), raw=True, names={"masked": "--mask"}))
@options.loads_models
def evaluate(
    model: options.Model,
    changes: dict[str, str],
    judge: Judge = None,
    judge_model: JudgeModel = None,
    workers: options.Workers = None,
    compute: options.Compute = "auto",
    as_json: options.Json = False,
) -> None:
    """Evaluate a model on the seven categories of HELMET (section 4.1).

    Answers are stored one by one: a run that was stopped goes on when the same command is given
    again.

    Example: rmutils evaluate tiny-llama --datasets RAG,Cite --lengths 512,2048 --samples 20

    --mask takes heads or a file of head scores, whose retrieval heads are masked.

    Example: rmutils evaluate tiny-llama --mask 3-7,3-15 --how mean
    """
    if Path(changes.get("masked", "")).is_file():
        scores = HeadScores.load(changes["masked"])
        changes["masked"] = ",".join(
            f"{layer}-{head}" for layer, head in scores.select(tau=tau_of(model)))
    grading = GradingJudge(ServerJudge(judge, judge_model or GEMMA)) if judge else None
    table, artifact = evaluate_stored(
        model, EvaluateConfig().changed(changes), judge=grading, compute=compute,
        workers=workers or default_workers())
    show(averages(table), {"model": model, "artifact": artifact.name}, as_json)


def show(means: pd.DataFrame, about: dict, as_json: bool) -> None:
    """Print averages, data set by data set."""
    if as_json:
        typer.echo(json.dumps(about | {"averages": json.loads(means.to_json(orient="records"))},
                              indent=1))
        return
    for length, part in means.groupby("length"):
        typer.echo(f"{about['model']}, {length} tokens")
        for row in part.itertuples():
            indent = {"data set": "    ", "category": "  ", "overall": ""}[row.level]
            interval = "   " + span(row.low, row.high, "5.1f", what="text")
            about_texts = f"   {row.samples} samples of {row.texts} text{'s' * (row.texts > 1)}"
            notes = about_texts + f"   {row.unscored} unscored" * bool(row.unscored) + \
                f"   missing: {row.missing}" * bool(row.missing)
            typer.echo(f"{indent + row.name:22}{row.value:6.1f}{interval}{notes}")
    typer.echo(f"Stored as {about['artifact']}.")
