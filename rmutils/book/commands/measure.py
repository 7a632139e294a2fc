"""Commands that measure a model: `rmutils report`, `abilities`, `variants`, `real-models`."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer
from pydantic import ValidationError

from rmutils.attention.variants import PLAIN
from rmutils.book.chapters.general_abilities import (
    ability_table,
    evaluate_trainings,
    means_by_strategy,
)
from rmutils.book.chapters.retrieval_heads_under_change.experiment import HeadsConfig, heads_stored
from rmutils.book.chapters.share_attention.savings_curves import MEASUREMENTS, saved
from rmutils.book.chapters.your_own_model import OwnModelConfig, examine
from rmutils.book.experiments.real_models import ITEMS, make
from rmutils.book.experiments.under_variants import VariantConfig, levels, measure_stored
from rmutils.cli import options
from rmutils.cli.evaluate import Judge, JudgeModel
from rmutils.cli.from_configs import Command, Part, configured
from rmutils.core.config import Config
from rmutils.core.errors import UserError
from rmutils.core.journal import default_workers
from rmutils.core.results import Tables
from rmutils.core.validation import explain
from rmutils.evaluation.abilities import harness as harness_runs
from rmutils.evaluation.abilities.evaluate_abilities import (
    GeneralConfig,
    drift_table,
    evaluate_general_stored,
)
from rmutils.evaluation.abilities.mt_bench import MTBenchConfig, MTBenchRun
from rmutils.preference.judges import GEMMA
from rmutils.stats import span

REPORTED = {name: f"--{name.split('.')[1]}" for name in (
    "detect.lengths", "detect.depths", "detect.needles", "sweep.counts", "sweep.draws",
    "sweep.samples")}
"""Options of `rmutils report` that need no prefix."""


@configured(config=Part(OwnModelConfig(), names=REPORTED))
@options.loads_models
def report(
    ctx: typer.Context,
    model: options.Model,
    config: OwnModelConfig,
    out: Annotated[Path | None, typer.Option(
        help="The page (.html). Its numbers go beside it (.json).",
        show_default="report-MODEL.html")] = None,
    compute: options.Compute = "auto",
    as_json: options.Json = False,
) -> None:
    """Detect a model's retrieval heads, mask ever more of them, and predict RetMask's gain.

    Writes a page that stands alone and prints on one sheet, and its numbers as JSON. A run that was
    stopped goes on when the same command is given again.

    Example: rmutils report ./my-checkpoint

    Example: rmutils report model.gguf --lengths 512,2048 --out my-model.html
    """
    from rmutils.book.tools import model_report  # matplotlib: only when it is needed

    if out and out.suffix != ".html":
        raise UserError(f"--out {out}: the page is HTML. Give a file that ends in .html.")
    options.check_room(out or Path("report.html"))
    own = examine(model, config, compute=compute, command=options.command_line(ctx))
    found = model_report.forecasts(own)
    numbers = model_report.as_json(own, found)
    target = out or Path(f"report-{re.sub(r'[^A-Za-z0-9.-]+', '-', own.name).strip('-.')}.html")
    target.write_text(model_report.page(own, found), encoding="utf-8")
    target.with_suffix(".json").write_text(numbers, encoding="utf-8")
    if as_json:
        print(numbers, end="")
        return
    rows = model_report.summary(own, found).itertuples(index=False)
    print(f"{own.name}:", *(f"{what}: {shown}" for what, shown in rows), sep="\n- ")
    print(f"Written: {target} and {target.with_suffix('.json').name}")



@configured(changes=Part(GeneralConfig(), harness_runs.HarnessConfig(), MTBenchConfig(), raw=True))
@options.loads_models
def abilities(
    model: options.Model,
    changes: dict[str, str],
    show: options.List = False,
    base: Annotated[str | None, typer.Option(
        help="The model it was trained from, to measure how far it has moved.",
        show_default="the one that a training says")] = None,
    trainings: Annotated[bool, typer.Option(
        "--trainings", help="MODEL and all of the book's trainings of it.")] = False,
    harness: Annotated[Path | None, typer.Option(
        metavar="FOLDER", help="Instead: GPQA, MATH-500, HumanEval and MMLU-Pro with "
        "lm-evaluation-harness; results that are in the folder already are read.")] = None,
    mt_bench: Annotated[Path | None, typer.Option(
        metavar="FILE", help="Instead: the questions of this file (FastChat's question.jsonl), "
        "rated by --judge.")] = None,
    judge: Judge = None,
    judge_model: JudgeModel = None,
    workers: options.Workers = None,
    compute: options.Compute = "auto",
    as_json: options.Json = False,
) -> None:
    """Ask a model what it could do before RetMask (section 5.1), with tasks that need no network.

    A run that was stopped goes on when the same command is given again.

    Example: rmutils abilities smollm2-135m --samples 50
    """
    if bool(harness) + bool(mt_bench) + trainings > 1:
        raise UserError("--trainings, --harness and --mt-bench exclude each other: give one.")
    kind = harness_runs.HarnessConfig if harness else MTBenchConfig if mt_bench else GeneralConfig
    config = kind().changed(changes)
    if show:
        options.list_values(config)
    elif trainings:
        _trainings(model, workers, as_json)
    elif harness:
        _harness(model, harness, config, as_json)
    elif mt_bench:
        if judge is None:
            raise UserError("--mt-bench needs a judge: --judge http://127.0.0.1:8000, say.")
        samples, artifact = MTBenchRun(
            questions=mt_bench, judge=judge, judge_model=judge_model or GEMMA,
            answers=config).obtain(model, compute=compute)
        _print({"model": model, "artifact": artifact.name}, samples, as_json)
    else:
        result, artifact = evaluate_general_stored(
            model, config, base=base, compute=compute, workers=workers or default_workers())
        moved = drift_table(result.drift) if len(result.drift) else None
        _print({"model": model, "artifact": artifact.name}, result.samples, as_json, moved)


def _trainings(model: str, workers: int | None, as_json: bool) -> None:
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


def _harness(model: str, folder: Path, config: harness_runs.HarnessConfig, as_json: bool) -> None:
    known = harness_runs.chosen(config, harness_runs.BENCHMARKS)
    if harness_runs.find_results(folder) is None:
        where = harness_runs.checkpoint(model, folder / "model")
        harness_runs.run_harness(harness_runs.command(where, folder, config))
    samples, about = harness_runs.read_results(folder, known)
    _print(about, samples, as_json)


def _print(about: dict[str, str], samples: pd.DataFrame, as_json: bool,
           moved: pd.DataFrame | None = None) -> None:
    table = ability_table(samples)
    if as_json:
        typer.echo(json.dumps(about | {
            "tasks": _rows(table), "drift": [] if moved is None else _rows(moved)}, indent=1))
        return
    for row in table.itertuples():
        unscored = f", {row.unscored} unscored" if row.unscored else ""
        typer.echo(f"{row.task:26}  {_shown(row)}  ({row.samples} samples{unscored})")
    for row in moved.itertuples() if moved is not None else ():
        typer.echo(f"{row.measure:26}  {row.value:.4g}  {span(row.low, row.high, '.4g')}")
    typer.echo(", ".join(f"{name} {value}" for name, value in about.items()))


def _rows(table: pd.DataFrame) -> list[dict]:
    """For JSON, which has no NaN."""
    return table.astype(object).where(table.notna(), None).to_dict("records")


def _shown(row) -> str:
    return f"{row.value:5.1f}  {span(row.low, row.high)}"


variants_app = typer.Typer(no_args_is_help=True, add_completion=False, help="""
Measure a model whose attention is changed.

A run that was stopped goes on when the same command is given again.

Example: rmutils variants answers tiny-llama --variant.kind ms-poe --variant.s-max 2

Example: rmutils variants recall tiny-llama --p 0.9,0.5
""")
MEASURED = {
    "answers": "Needles, documents and short texts under one variant.",
    "heads": "Retrieval heads under several variants.",
    "agreement": "Layers and tokens that agree, on which both methods rest.",
    "costs": "Time and multiply-adds of several variants.",
    "layers": "One layer after the other under Share- or Select-Attention.",
    "later-sharing": "Sharing in later layers only: alike heads against random ones.",
    "likeness": "How alike the heads of a layer are, on which Share-Attention rests.",
    "recall": "Needles among the tokens that Select-Attention selects.",
}

ASKED = (("needles found", "needles", "correct"), ("questions answered", "documents", "correct"),
         ("perplexity of short texts", "texts", "nats"))
SHOWN = {  # measurement: column of names; what is shown, table, column
    "answers": ("length", ASKED),
    "heads": ("subject", (("needles found by the whole model, with retrieval heads masked, with as "
                           "many others masked", "needles", "correct"),)),
    "costs": ("tokens", (("seconds to read the prompt", "costs", "prefill_seconds"),
                         ("seconds for a token of the answer", "costs", "step_seconds"))),
    "layers": ("length", ASKED),
    "agreement": ("steps", (("share of a step's tokens that matter that many steps later, too",
                             "overlap", "common"),)),
    "later-sharing": ("arm", (ASKED[0], ASKED[2])),
    "likeness": ("layer", (("distance of two heads of a layer", "distances", "distance"),)),
    "recall": ("p", (("share of the needle selected by the end of the prompt", "recall", "prompt"),
                     ("share of the needle selected while answering", "recall", "answer"),
                     ("share of all tokens selected while answering", "recall", "answer_kept"))),
}
"""Columns that each measurement prints: means with 95 % intervals."""


def summaries(name: str, tables: Tables, variant: str) -> dict[str, pd.DataFrame]:
    """Return means with intervals of a measurement's tables, by what they are of."""
    by, shown = SHOWN[name]
    found = {}
    for title, table, column in shown:
        if (rows := tables.get(table)) is None or rows.empty:
            continue
        if table == "distances":  # a head is not like itself; intervals are over heads
            rows = rows[rows["head"] != rows["other"]].rename(columns={"head": "question"})
        rows = rows if "variant" in rows else rows.assign(variant=variant)
        means = levels(rows, column, [by] * (by in rows))
        if column == "nats":
            means[["value", "low", "high"]] = np.exp(means[["value", "low", "high"]])
        found[title] = means
    return found


def _add_measurement(name: str, config: type[Config], measure: Callable) -> None:
    """Add a command that measures with one kind of configuration."""
    @configured(changes=Part(config(), raw=True))
    @options.loads_models
    def command(
        model: options.Model,
        changes: dict[str, str],
        configuration: Annotated[str | None, typer.Argument(
            metavar="[JSON]", help="What differs from the defaults, as JSON.")] = None,
        compute: options.Compute = "auto",
        as_json: options.Json = False,
    ) -> None:
        try:
            start = config.model_validate_json(configuration or "{}")
        except ValidationError as error:
            raise UserError(f"the configuration of {name} does not fit: "
                            f"{explain(error, config)}") from error
        asked = start.changed(changes)
        tables, artifact = measure(model, asked, compute=compute)
        facts = artifact.manifest["facts"]
        found = summaries(name, tables, getattr(getattr(asked, "variant", None), "kind", PLAIN))
        if as_json:
            print(json.dumps({
                "model": model, "measurement": name, "artifact": artifact.name,
                "folder": str(artifact.folder), "facts": facts,
                "means": {title: _rows(means) for title, means in found.items()}}, indent=1))
            return
        for title, means in found.items():
            print(f"{model}, {title} (mean, 95 % interval)")
            print(means.to_string(index=False, float_format="{:.3g}".format), end="\n\n")
        rows = ", ".join(f"{name}: {count}" for name, count in facts.items())
        print(f"Rows of each table: {rows}.\nStored as {artifact.folder}")

    variants_app.command(name, cls=Command, help=MEASURED.get(name))(command)


_add_measurement("answers", VariantConfig, measure_stored)
_add_measurement("heads", HeadsConfig, heads_stored)
for _name, _one in MEASUREMENTS.items():
    _add_measurement(_name, _one.config, saved)


@options.loads_models
def real_models(
    item: Annotated[str, typer.Argument(
        metavar="ITEM", help=f"Part of the plan: {', '.join(ITEMS)}.")],
    model: Annotated[str, typer.Argument(metavar="MODEL", help="One of the plan's models.")],
    compute: options.Compute = "auto",
    as_json: options.Json = False,
) -> None:
    """Make one part of data/plans/real_models.yml for one model, or look it up.

    A part that was stopped goes on when the same command is given again. `detection` gives the
    scores by which the others choose heads; they make it where it is missing.

    Example: rmutils real-models detection smollm2-135m

    Example: rmutils real-models masking qwen2.5-coder-0.5b
    """
    made = make(item, model, compute)
    if as_json:
        print(json.dumps({"item": item, "model": model, "artifacts": [
            {"name": one.name, "folder": str(one.folder), "seconds": one.manifest["seconds"],
             "facts": one.manifest["facts"]} for one in made]}, indent=1))
        return
    for one in made:
        print(f"{one.name}: {one.manifest['seconds']:.0f} s. Stored as {one.folder}")
