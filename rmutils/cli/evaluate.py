"""`rmutils evaluate`: HELMET's seven categories, over this project's data or with HELMET itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rmutils.cli import options
from rmutils.errors import UserError

if TYPE_CHECKING:
    import pandas as pd


def evaluate(
    model: Annotated[str, typer.Argument(
        help="Registry name, folder, hub id, or a stored training (train-...).")],
    suite: Annotated[Literal["world", "helmet"], typer.Option(
        help="Data of this project, scored here; or the files and commands for the official "
             "HELMET.")] = "world",
    datasets: Annotated[str | None, typer.Option(
        help="Data sets or categories, comma-separated.", show_default="all")] = None,
    lengths: Annotated[str | None, typer.Option(
        help="Tokens of prompt and answer, comma-separated.",
        show_default="512,2048; HELMET: 8192 to 131072")] = None,
    samples: Annotated[int, typer.Option(min=1, help="Of each data set at each length.")] = 50,
    seed: Annotated[int, typer.Option(help="Of texts, questions and demonstrations.")] = 42,
    shots: Annotated[int | None, typer.Option(
        min=0, help="Demonstrations.", show_default="HELMET's; 0 for teaching models")] = None,
    chat: Annotated[bool | None, typer.Option(
        "--chat/--no-chat", help="Whether the chat template is used.",
        show_default="as in HELMET; always by teaching models")] = None,
    thinking: Annotated[bool, typer.Option(help="Let the model think first.")] = False,
    thoughts: Annotated[int, typer.Option(min=1, help="Most tokens of thoughts.")] = 256,
    judge: Annotated[str | None, typer.Option(
        metavar="URL", help="A server that grades free answers in place of rules.")] = None,
    judge_model: Annotated[str | None, typer.Option(help="The model that it serves.")] = None,
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

    Example: rmutils evaluate llama-3.1-8b-instruct --suite helmet --lengths 131072
    """
    if suite == "helmet":
        _write_helmet(model, datasets, lengths, chat, thinking, out)
        return
    from rmutils.evaluation.longcontext import EvaluateConfig, averages, evaluate_stored
    from rmutils.workers import default_workers

    given = {"datasets": datasets, "lengths": lengths, "samples": samples, "seed": seed,
             "shots": shots, "chat": chat, "thinking": thinking, "thoughts": thoughts}
    config = EvaluateConfig().changed({k: v for k, v in given.items() if v is not None})
    table, artifact = evaluate_stored(
        model, config, judge=_judge(judge, judge_model), compute=compute,
        workers=workers or default_workers())
    show(averages(table), {"model": model, "artifact": artifact.name}, as_json)


def _judge(url: str | None, model: str | None):
    if url is None:
        return None
    from rmutils.contrast.judges import GEMMA, ServerJudge
    from rmutils.evaluation.longcontext.judge import GradingJudge

    return GradingJudge(ServerJudge(url, model or GEMMA))


def _write_helmet(
    model: str, categories: str | None, lengths: str | None, chat: bool | None, thinking: bool,
    out: Path,
) -> None:
    from rmutils.artifacts import find
    from rmutils.evaluation.longcontext.helmet import write
    from rmutils.evaluation.longcontext.official import LENGTHS
    from rmutils.evaluation.longcontext.suite import CATEGORIES
    from rmutils.models import REGISTRY

    chosen = categories.split(",") if categories else CATEGORIES
    if unknown := [name for name in chosen if name not in CATEGORIES]:
        raise UserError(f"--datasets {', '.join(unknown)}: HELMET is run by categories, which are "
                        f"{', '.join(CATEGORIES)}.")
    try:
        wanted = [int(word) for word in lengths.split(",")] if lengths else LENGTHS
    except ValueError as error:
        raise UserError(f"--lengths {lengths}: whole numbers with commas between.") from error
    spec, training = REGISTRY.get(model), find(model)
    name = spec.hub_id if spec and spec.hub_id else str(training.folder) if training else model
    script = write(name, out, lengths=wanted, categories=chosen, chat=chat, thinking=thinking)
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
            interval = "" if row.low != row.low else \
                f"   95 % interval {row.low:5.1f} to {row.high:5.1f}"
            notes = f"   {row.unscored} unscored" * bool(row.unscored) + \
                f"   missing: {row.missing}" * bool(row.missing)
            typer.echo(f"{indent + row.name:22}{row.value:6.1f}{interval}{notes}")
    typer.echo(f"Stored as {about['artifact']}.")
