"""Commands that score a model on long contexts: `rmutils evaluate`, `rmutils collect`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
import typer

from rmutils.attention.variants import Plain
from rmutils.cli import options
from rmutils.cli.from_configs import Part, configured
from rmutils.core.errors import UserError, did_you_mean
from rmutils.core.journal import default_workers
from rmutils.evaluation.abilities import harness as harness_runs
from rmutils.evaluation.helmet import EvaluateConfig, averages, evaluate_stored
from rmutils.evaluation.helmet.metrics import GradingJudge
from rmutils.evaluation.helmet.official import HELMET, LENGTHS, write
from rmutils.evaluation.helmet.suite import CATEGORIES
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
    suite: Annotated[Literal["world", "helmet"], typer.Option(
        help="Data of this project, scored here; or the files and commands for the official "
             "HELMET.")] = "world",
    judge: Judge = None,
    judge_model: JudgeModel = None,
    workers: options.Workers = None,
    out: Annotated[Path, typer.Option(
        help="HELMET: folder for configurations and script.")] = Path("helmet"),
    compute: options.Compute = "auto",
    as_json: options.Json = False,
) -> None:
    """Evaluate a model on the seven categories of HELMET (section 4.1).

    Answers are stored one by one: a run that was stopped goes on when the same command is given
    again.

    Example: rmutils evaluate tiny-llama --datasets RAG,Cite --lengths 512,2048 --samples 20

    RULER is asked as well, by its 13 tasks.

    Example: rmutils evaluate smollm2-135m --datasets RULER --lengths 1024,4096 --samples 10

    --mask takes heads or a file of head scores, whose retrieval heads are masked.

    Example: rmutils evaluate tiny-llama --mask 3-7,3-15 --how mean

    Example: rmutils evaluate llama-3.1-8b-instruct --suite helmet --lengths 131072
    """
    if Path(changes.get("masked", "")).is_file():
        scores = HeadScores.load(changes["masked"])
        changes["masked"] = ",".join(
            f"{layer}-{head}" for layer, head in scores.select(tau=tau_of(model)))
    if suite == "helmet":
        _write_helmet(model, changes, out)
        return
    grading = GradingJudge(ServerJudge(judge, judge_model or GEMMA)) if judge else None
    table, artifact = evaluate_stored(
        model, EvaluateConfig().changed(changes), judge=grading, compute=compute,
        workers=workers or default_workers())
    show(averages(table), {"model": model, "artifact": artifact.name}, as_json)


def _write_helmet(model: str, changes: dict[str, str], out: Path) -> None:
    categories = changes.pop("datasets", None)
    chosen = categories.split(",") if categories else CATEGORIES
    if unknown := [name for name in chosen if name not in CATEGORIES]:
        raise UserError(f"--datasets {', '.join(unknown)}: HELMET is run by categories, which are "
                        f"{', '.join(CATEGORIES)}.{did_you_mean(unknown[0], CATEGORIES)}")
    config = EvaluateConfig().changed(changes)
    if config.variant != Plain():
        raise UserError("HELMET itself knows no variant of attention: leave --variant out.")
    if config.masked:
        raise UserError("HELMET itself masks no heads: give it the model that `rmutils mask` "
                        "writes, and leave --mask out.")
    options.check_room(out, folder=True)
    folder = out / f"{Path(model).name}-weights"
    script = write(harness_runs.checkpoint(model, folder), out,
                   lengths=config.lengths if "lengths" in changes else LENGTHS,
                   categories=chosen, chat=config.chat, thinking=config.thinking)
    typer.echo(f"Written: {script} and {len(chosen)} configurations. In a clone of HELMET run\n"
               f"bash {script}")


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


def collect(
    folder: Annotated[Path, typer.Argument(help="HELMET's output folder of one model.")],
    as_json: options.Json = False,
) -> None:
    """Read HELMET's result files, store them, and show their averages.

    Example: rmutils collect HELMET/output/Llama-3.1-8B-Instruct
    """
    from rmutils.evaluation.helmet.official_results import collect_stored

    table, artifact = collect_stored(folder)
    about = {"model": artifact.manifest["facts"]["model"], "artifact": artifact.name}
    show(averages(table, HELMET), about, as_json)
