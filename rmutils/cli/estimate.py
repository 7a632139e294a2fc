"""`rmutils estimate`: what a run of a notebook, or the paper's study, will cost."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Literal

import typer

from rmutils.cli.run import find_notebook, pairs
from rmutils.errors import UserError

app = typer.Typer(add_completion=False)


# Typer has no repeatable option with two values, so `-p` arrives among the arguments.
@app.command("estimate", context_settings={"ignore_unknown_options": True})
def estimate(
    notebook: Annotated[str | None, typer.Argument(
        help="A notebook of the book by name, or a path.", show_default=False)] = None,
    parameters: Annotated[list[str] | None, typer.Argument(
        metavar="[-p NAME VALUE]...",
        help="Parameters, as for `rmutils run` or `rmutils study --profile paper`.")] = None,
    profile: Annotated[Literal["paper"] | None, typer.Option(
        help="Instead of a notebook: the paper's own study, on accelerators.",
        show_default=False)] = None,
    accelerator: Annotated[Literal["h100", "h200"], typer.Option(
        help="Of --profile paper.")] = "h100",
    assume: Annotated[list[str] | None, typer.Option(
        metavar="NAME=VALUE", help="Of --profile paper: another assumption than those that it "
                                   "prints, such as compute=0.5.", show_default=False)] = None,
    jobs: Annotated[bool, typer.Option("--jobs", help="Of --profile paper: each job.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say how long a run will take, how much memory and disk, and why.

    Of a notebook nothing is run but a fraction of a second of work that shows how fast this machine
    is just now. Expect the time to be right within a factor of 2. Of the paper's study nothing is
    run at all: its costs follow from shapes, counts of tokens, and stated assumptions.

    Example: rmutils estimate 02_masking_sweep -p model tiny-qwen3

    Example: rmutils estimate --profile paper -p models qwen3-8b --accelerator h200
    """
    words = [*([notebook] if notebook else []), *(parameters or [])]
    if profile:
        _paper(pairs(words), accelerator, assume or [], jobs, as_json)
    elif notebook:
        _notebook(notebook, pairs(parameters or []), as_json)
    else:
        raise UserError("name a notebook, or --profile paper.")


def _notebook(notebook: str, given: dict[str, str], as_json: bool) -> None:
    from rmutils import estimate as known
    from rmutils.parameters import check_parameters

    path = find_notebook(notebook)
    changed = check_parameters(path, given)
    found = known.estimate(known.load_costs(path), changed, slowness=known.slowness())
    if as_json:
        typer.echo(json.dumps(asdict(found) | {"seconds": found.seconds}, indent=1))
        return
    lines = [f"time    {_clock(found.seconds)}", f"memory  {found.memory / 1e9:.1f} GB",
             f"disk    {max(found.disk / 1e6, 1):,.0f} MB", "", "The time is made up of"]
    lines += [f"  {_clock(step.seconds):>10}  {step.what}: {step.why}" for step in found.steps]
    lines.append(f"This machine takes {found.slowness:.2g} times as long just now as the one on "
                 "which the seconds were measured (data/timings.json).")
    typer.echo("\n".join(lines))


def _clock(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _paper(changes: dict[str, str], accelerator: str, assume: list[str], jobs: bool,
           as_json: bool) -> None:
    from rmutils.estimate.paper import estimate_paper
    from rmutils.estimate.scale import Assumptions
    from rmutils.study.paper import PaperConfig

    assumed = Assumptions().changed(dict(
        word.partition("=")[::2] for word in assume))
    found = estimate_paper(PaperConfig().changed(changes), accelerator, assumed)
    beside = found.beside_paper()
    if as_json:
        typer.echo(json.dumps({
            "accelerator": asdict(found.rates.machine), "assumptions": assumed.model_dump(),
            "total": asdict(found.total), "steps": found.steps().to_dict("records"),
            "beside_paper": beside.to_dict("records"),
            "jobs": {name: asdict(cost) for name, cost in found.costs.items()}}, indent=1))
        return
    if jobs:
        for name, cost in found.costs.items():
            typer.echo(f"{cost.gpu_hours:9.1f} GPU hours {_size(cost.memory):>8}  {name}: "
                       f"{cost.why}")
        typer.echo("")
    typer.echo(f"{'step':18}{'jobs':>5}{'GPU hours':>11}{'GPUs':>6}{'memory of each':>16}"
               f"{'disk':>9}{'and scratch':>13}")
    total = {"step": "all", "jobs": len(found.jobs), **asdict(found.total)}
    for row in (*found.steps().to_dict("records"), total):
        typer.echo(f"{row['step']:18}{row['jobs']:5}{row['gpu_hours']:11,.1f}{row['gpus']:6}"
                   f"{_size(row['memory']):>16}{_size(row['disk']):>9}"
                   f"{_size(row['scratch']):>13}")
    typer.echo("\nRetMask on LMSYS-Chat-1M, beside what the paper tells")
    for row in beside.itertuples():
        typer.echo(f"  {row.model:22} {row.step:11} {row.derived:6.1f} {row.unit} (at full "
                   f"rates {row.floor:.1f}); paper: {row.paper:g} ({row.place}: "
                   f"\"{row.as_printed}\")\n    {row.why}")
    machine = found.rates.machine
    typer.echo(
        f"\nOne {machine.name}: {machine.flops / 1e12:.0f} TFLOPS, {machine.memory / 1e9:.0f} GB "
        f"at {machine.bandwidth / 1e12:g} TB/s (data sheet). Assumed: "
        f"{', '.join(f'{name} {value}' for name, value in assumed)}; see "
        f"rmutils.estimate.scale.machines. Hours without loading, waiting and repeats.")


def _size(size: float) -> str:
    return f"{size / 1e12:,.1f} TB" if size >= 1e12 else f"{size / 1e9:,.0f} GB"
