"""`rmutils abilities`: what a model can do besides long contexts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rmutils.cli import options
from rmutils.cli.run import pairs
from rmutils.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

app = typer.Typer(add_completion=False)


# Typer has no repeatable option with two values, so `-p` arrives among the arguments.
@app.command("abilities", context_settings={"ignore_unknown_options": True})
def abilities(
    model: Annotated[str, typer.Argument(
        help="Registry name, folder, hub id, or a stored training (train-...).")],
    parameters: Annotated[list[str] | None, typer.Argument(
        metavar="[-p NAME VALUE]...", help="What is to be different; see --list.")] = None,
    show: Annotated[bool, typer.Option("--list", help="List names and values, and stop.")] = False,
    base: Annotated[str | None, typer.Option(
        help="The model it was trained from, to measure how far it has moved.",
        show_default="of a stored training its own")] = None,
    trainings: Annotated[bool, typer.Option(
        "--trainings", help="MODEL and all of the book's trainings of it.")] = False,
    harness: Annotated[Path | None, typer.Option(
        metavar="FOLDER", help="Instead: GPQA, MATH-500, HumanEval and MMLU-Pro with "
        "lm-evaluation-harness; results that are in the folder already are read.")] = None,
    mt_bench: Annotated[Path | None, typer.Option(
        metavar="FILE", help="Instead: the questions of this file (FastChat's question.jsonl), "
        "rated by --judge.")] = None,
    judge: Annotated[str | None, typer.Option(
        help="Address of a server with OpenAI's interface.")] = None,
    judge_model: Annotated[str | None, typer.Option(help="The judge's name there.")] = None,
    workers: options.Workers = None,
    compute: options.Compute = "auto",
    as_json: options.Json = False,
) -> None:
    """Ask a model what it could do before RetMask (section 5.1), with tasks that need no network.

    A run that was stopped goes on when the same command is given again.

    Example: rmutils abilities smollm2-135m -p samples 50
    """
    if bool(harness) + bool(mt_bench) + trainings > 1:
        raise UserError("--trainings, --harness and --mt-bench exclude each other: give one.")
    changes = pairs(parameters or [])
    if show:
        return _list(harness, mt_bench)
    if trainings:
        return _trainings(model, workers, as_json)
    if harness:
        return _harness(model, harness, changes, as_json)
    if mt_bench:
        return _mt_bench(model, mt_bench, judge, judge_model, changes, compute, as_json)
    from rmutils.evaluation.general.abilities import GeneralConfig
    from rmutils.evaluation.general.drift import drift_table
    from rmutils.evaluation.general.store import evaluate_general_stored
    from rmutils.workers import default_workers

    result, artifact = evaluate_general_stored(model, GeneralConfig().changed(changes), base=base,
                                               compute=compute,
                                               workers=workers or default_workers())
    moved = drift_table(result.drift) if len(result.drift) else None
    return _print({"model": model, "artifact": artifact.name}, result.samples, as_json, moved)


def _list(harness: Path | None, mt_bench: Path | None) -> None:
    from rmutils.evaluation.general.abilities import GeneralConfig
    from rmutils.evaluation.general.harness import HarnessConfig
    from rmutils.evaluation.general.mt_bench import MTBenchConfig

    config = HarnessConfig() if harness else MTBenchConfig() if mt_bench else GeneralConfig()
    for name, value in config:
        typer.echo(f"{name} = {value}")


def _trainings(model: str, workers: int | None, as_json: bool) -> None:
    from rmutils.evaluation.general.comparing import means_by_strategy
    from rmutils.evaluation.general.planned import evaluate_trainings
    from rmutils.workers import default_workers

    found = evaluate_trainings(model, workers or default_workers())
    table = means_by_strategy(found.samples)
    if as_json:
        names = [artifact.name for artifact in found.artifacts.values()]
        typer.echo(json.dumps({"model": model, "artifacts": names, "missing": found.missing,
                               "means": _rows(table)}, indent=1))
        return
    for row in table.itertuples():
        typer.echo(f"{row.strategy:20}  {row.task:26}  {_shown(row)}  (seeds: {row.seeds})")
    for command in found.missing:
        typer.echo(f"missing: {command}")


def _harness(model: str, folder: Path, changes: dict[str, str], as_json: bool) -> None:
    from rmutils.evaluation.general import harness
    from rmutils.evaluation.general.harness_results import find_results, read_results
    from rmutils.training.by_name import load_by_name

    config = harness.HarnessConfig().changed(changes)
    known = harness.chosen(config, harness.BENCHMARKS)
    if find_results(folder) is None:
        where = harness.checkpoint(model, folder / "model", load_by_name)
        harness.run_harness(harness.command(where, folder, config))
    samples, about = read_results(folder, known)
    _print(about, samples, as_json)


def _mt_bench(
    model: str, questions: Path, address: str | None, judge_model: str | None,
    changes: dict[str, str], compute: str, as_json: bool,
) -> None:
    from rmutils.contrast.judges import GEMMA
    from rmutils.evaluation.general.mt_bench import MTBenchConfig, MTBenchRun

    if address is None:
        raise UserError("--mt-bench needs a judge: --judge http://127.0.0.1:8000, say.")
    asked = MTBenchRun(questions=questions, judge=address, judge_model=judge_model or GEMMA,
                       answers=MTBenchConfig().changed(changes))
    samples, artifact = asked.obtain(model, compute=compute)
    _print({"model": model, "artifact": artifact.name}, samples, as_json)


def _print(
    about: dict[str, str], samples: pd.DataFrame, as_json: bool, moved: pd.DataFrame | None = None
) -> None:
    from rmutils.evaluation.general.comparing import ability_table

    table = ability_table(samples)
    if as_json:
        typer.echo(json.dumps(about | {
            "tasks": _rows(table), "drift": [] if moved is None else _rows(moved)}, indent=1))
        return
    for row in table.itertuples():
        unscored = f", {row.unscored} unscored" if row.unscored else ""
        typer.echo(f"{row.task:26}  {_shown(row)}  ({row.samples} samples{unscored})")
    for row in moved.itertuples() if moved is not None else ():
        typer.echo(f"{row.measure:26}  {row.value:.4g}  "
                   f"95 % interval {row.low:.4g} to {row.high:.4g}")
    typer.echo(", ".join(f"{name} {value}" for name, value in about.items()))


def _rows(table: pd.DataFrame) -> list[dict]:
    """For JSON, which has no NaN."""
    return table.astype(object).where(table.notna(), None).to_dict("records")


def _shown(row) -> str:
    return f"{row.value:5.1f}  95 % interval {row.low:.1f} to {row.high:.1f}"
