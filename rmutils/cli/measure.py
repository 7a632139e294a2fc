"""`rmutils evaluate`: HELMET's seven categories, over this project's data or with HELMET itself.

`rmutils collect`: results of the official HELMET, in the table of `rmutils evaluate`.

`rmutils abilities`: what a model can do besides long contexts.

`rmutils variants`: a model with its attention changed, and what that gives, saves and moves.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
import typer

from rmutils.cli import options
from rmutils.cli.project import parameter_pairs
from rmutils.core.errors import UserError


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
    from rmutils.core.journal import default_workers
    from rmutils.evaluation.helmet import EvaluateConfig, averages, evaluate_stored

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
    from rmutils.evaluation.helmet.grading import GradingJudge
    from rmutils.preference.judges import GEMMA, ServerJudge

    return GradingJudge(ServerJudge(url, model or GEMMA))


def _write_helmet(
    model: str, categories: str | None, lengths: str | None, chat: bool | None, thinking: bool,
    out: Path,
) -> None:
    from rmutils.core.results import find
    from rmutils.evaluation.helmet.official import LENGTHS, write
    from rmutils.evaluation.helmet.suite import CATEGORIES
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


def collect(
    folder: Annotated[Path, typer.Argument(help="HELMET's output folder of one model.")],
    as_json: options.Json = False,
) -> None:
    """Read HELMET's result files, store them, and show their averages.

    Example: rmutils collect HELMET/output/Llama-3.1-8B-Instruct
    """
    from rmutils.evaluation.helmet.averages import averages
    from rmutils.evaluation.helmet.official import HELMET
    from rmutils.evaluation.helmet.official_results import collect_stored

    table, artifact = collect_stored(folder)
    about = {"model": artifact.manifest["facts"]["model"], "artifact": artifact.name}
    show(averages(table, HELMET), about, as_json)


abilities_app = typer.Typer(add_completion=False)


# Typer has no repeatable option with two values, so `-p` arrives among the arguments.
@abilities_app.command("abilities", context_settings={"ignore_unknown_options": True})
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
    changes = parameter_pairs(parameters or [])
    if show:
        return _list(harness, mt_bench)
    if trainings:
        return _trainings(model, workers, as_json)
    if harness:
        return _harness(model, harness, changes, as_json)
    if mt_bench:
        return _mt_bench(model, mt_bench, judge, judge_model, changes, compute, as_json)
    from rmutils.core.journal import default_workers
    from rmutils.evaluation.abilities.drift import drift_table
    from rmutils.evaluation.abilities.evaluate_abilities import (
        GeneralConfig,
        evaluate_general_stored,
    )

    result, artifact = evaluate_general_stored(model, GeneralConfig().changed(changes), base=base,
                                               compute=compute,
                                               workers=workers or default_workers())
    moved = drift_table(result.drift) if len(result.drift) else None
    return _print({"model": model, "artifact": artifact.name}, result.samples, as_json, moved)


def _list(harness: Path | None, mt_bench: Path | None) -> None:
    from rmutils.evaluation.abilities.evaluate_abilities import GeneralConfig
    from rmutils.evaluation.abilities.harness import HarnessConfig
    from rmutils.evaluation.abilities.mt_bench import MTBenchConfig

    config = HarnessConfig() if harness else MTBenchConfig() if mt_bench else GeneralConfig()
    for name, value in config:
        typer.echo(f"{name} = {value}")


def _trainings(model: str, workers: int | None, as_json: bool) -> None:
    from rmutils.core.journal import default_workers
    from rmutils.experiments.general_abilities import evaluate_trainings, means_by_strategy

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
    from rmutils.evaluation.abilities import harness
    from rmutils.evaluation.abilities.harness import find_results, read_results
    from rmutils.models.trained import load_by_name

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
    from rmutils.evaluation.abilities.mt_bench import MTBenchConfig, MTBenchRun
    from rmutils.preference.judges import GEMMA

    if address is None:
        raise UserError("--mt-bench needs a judge: --judge http://127.0.0.1:8000, say.")
    asked = MTBenchRun(questions=questions, judge=address, judge_model=judge_model or GEMMA,
                       answers=MTBenchConfig().changed(changes))
    samples, artifact = asked.obtain(model, compute=compute)
    _print({"model": model, "artifact": artifact.name}, samples, as_json)


def _print(
    about: dict[str, str], samples: pd.DataFrame, as_json: bool, moved: pd.DataFrame | None = None
) -> None:
    from rmutils.experiments.general_abilities import ability_table

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


Measurement = Literal["answers", "heads", "costs", "layers", "likeness", "recall"]


def variants(
    measurement: Annotated[Measurement, typer.Argument(
        help="answers: needles, documents and short texts under one variant. heads: retrieval "
             "heads under several. Of Share- and Select-Attention, costs: time and multiply-adds; "
             "layers: one layer after the other; likeness: how alike heads are; recall: needles "
             "among selected tokens.")],
    model: Annotated[str, typer.Argument(
        help="Registry name, folder, .gguf file, hub id; for answers also a stored training "
             "(train-...).")],
    configuration: Annotated[str, typer.Argument(
        help="JSON of what differs from the defaults of the measurement.")] = "{}",
    compute: options.Compute = "auto",
    as_json: options.Json = False,
) -> None:
    """Measure a model whose attention is changed: Ms-PoE, Share- and Select-Attention, GemFilter,
    extended positions.

    A run that was stopped goes on when the same command is given again.

    Example: rmutils variants answers tiny-llama '{"variant": {"kind": "ms-poe", "s_max": 2}}'

    Example: rmutils variants recall tiny-llama '{"p": [0.9, 0.5]}'
    """
    from pydantic import ValidationError

    from rmutils.experiments.heads_under_variants import HeadsConfig, heads_stored
    from rmutils.experiments.savings_curves import MEASUREMENTS, saved
    from rmutils.experiments.under_variants import VariantConfig, measure_stored

    stored = {"answers": (VariantConfig, measure_stored), "heads": (HeadsConfig, heads_stored)}
    stored |= {name: (one.config, saved) for name, one in MEASUREMENTS.items()}
    kind, measure = stored[measurement]
    try:
        config = kind.model_validate_json(configuration)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'together'}: {e['msg']}"
                          for e in error.errors())
        raise UserError(f"the configuration of {measurement} does not fit: {wrong}.") from error
    _, artifact = measure(model, config, compute=compute)
    if as_json:
        print(json.dumps({"model": model, "measurement": measurement, "artifact": artifact.name,
                          "folder": str(artifact.folder), "facts": artifact.manifest["facts"]},
                         indent=1))
        return
    rows = ", ".join(f"{name}: {count}" for name, count in artifact.manifest["facts"].items())
    print(f"{model}, {measurement}. Rows of each table: {rows}.\nStored as {artifact.folder}")
