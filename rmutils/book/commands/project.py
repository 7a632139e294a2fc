"""Commands about the book: `rmutils run`, `estimate`, `claims`, `doctor`."""

import json
import sys
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Annotated, Literal

import typer

from rmutils.cli import options
from rmutils.cli.from_configs import OpenCommand, pairs
from rmutils.core import paths
from rmutils.core.errors import UserError, did_you_mean

NotebookParameters = Annotated[list[str] | None, typer.Option(
    "-p", metavar="NAME VALUE", show_default=False,
    help="A parameter of the notebook; --NAME VALUE does the same. Lists: 1,2,3 or JSON.")]

SMALLER = ("The model is large, so the run is smaller than this chapter's own, except where you "
           "give a value with -p")


def run(
    notebook: Annotated[str, typer.Argument(help="A notebook of the book by name, or a path.")],
    parameters: NotebookParameters = None,
    name: Annotated[str, typer.Option(
        help="Name of this run; the copy is book/runs/NOTEBOOK/NAME.ipynb.")] = "latest",
    output: Annotated[Path | None, typer.Option(help="Write the executed copy here.")] = None,
    show: Annotated[bool, typer.Option("--list", help="List the parameters and stop.")] = False,
) -> None:
    """Run a notebook with other parameters; keep the executed copy, and a page to look at.

    It becomes a page of the book at the next `make book`. With a larger model than the notebook's
    own, counts that are not given are smaller, so that it ends in minutes.

    Example: rmutils run 01_preliminaries -p tau 0.05 -p lengths 256,512 --name low-tau
    """
    from rmutils.book.jobs.notebook_costs import fitted, load_costs
    from rmutils.book.site.gallery import NAME
    from rmutils.book.site.notebooks import NotebookFailed, run_notebook, write_page
    from rmutils.book.site.parameters import (
        check_parameters,
        describe,
        from_folder,
        read_parameters,
    )

    path = find_notebook(notebook)
    if show:
        typer.echo(describe(read_parameters(path)) or f"{path.name} has no parameters")
        return
    if not NAME.fullmatch(name):
        raise UserError(f"{name!r} cannot be the name of a run: it becomes part of an address. Use "
                        "up to 100 letters, digits, '.', '_' and '-', not first '.' or '-'")
    if output and (output.suffix != ".ipynb" or output.is_dir()):
        raise UserError(f"--output {output}: the copy is a notebook. Give a file that ends in "
                        ".ipynb.")
    target = (output or paths.BOOK / "runs" / path.stem / f"{name}.ipynb").absolute()
    try:
        given = from_folder(path, check_parameters(path, pairs(parameters)), Path.cwd())
        if path.parent == paths.NOTEBOOKS:
            size = fitted(load_costs(path), given)
            given = size.values
            if size.cut:
                typer.echo(f"{SMALLER}: {size.cuts()}", err=True)
        run_notebook(path, target, given, progress=True)
    except NotebookFailed as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from None
    typer.echo(f"{target}\n{write_page(target)}")


run.command_class = OpenCommand


def find_notebook(name: str) -> Path:
    """The notebook of that path or name; `UserError` lists the names if there is none."""
    for path in (Path(name), paths.NOTEBOOKS / name, paths.NOTEBOOKS / f"{name}.ipynb"):
        if path.is_file():
            return path.resolve()
    known = sorted(p.stem for p in paths.NOTEBOOKS.glob("*.ipynb"))
    raise UserError(f"no notebook {name!r}.{did_you_mean(name, known)} notebooks/ has "
                    f"{', '.join(known) or 'none'}")


def estimate(
    notebook: Annotated[str | None, typer.Argument(
        help="A notebook of the book by name, or a path.", show_default=False)] = None,
    parameters: NotebookParameters = None,
    profile: Annotated[Literal["paper"] | None, typer.Option(
        help="Instead of a notebook: the paper's own study, on accelerators.",
        show_default=False)] = None,
    accelerator: Annotated[Literal["h100", "h200"], typer.Option(
        help="Of --profile paper.")] = "h100",
    assume: Annotated[list[str] | None, typer.Option(
        metavar="NAME=VALUE", help="Of --profile paper: another assumption than those that it "
                                   "prints, such as compute=0.5.", show_default=False)] = None,
    jobs: Annotated[bool, typer.Option("--jobs", help="Of --profile paper: each job.")] = False,
    as_json: options.Json = False,
) -> None:
    """Say how long a run will take, how much memory and disk, and why.

    Of a notebook nothing is run but a fraction of a second of work that shows how fast this machine
    is just now. Expect the time to be right within a factor of 2. Of the paper's study nothing is
    run at all: its costs follow from shapes, counts of tokens, and stated assumptions.

    Example: rmutils estimate 02_masking_sweep -p model tiny-qwen3

    Example: rmutils estimate --profile paper -p models qwen3-8b --accelerator h200
    """
    if profile:
        _paper(pairs(parameters), accelerator, assume or [], jobs, as_json)
    elif notebook:
        _notebook(notebook, pairs(parameters), as_json)
    else:
        raise UserError("name a notebook, or --profile paper.")


estimate.command_class = OpenCommand


def _notebook(notebook: str, given: dict[str, str], as_json: bool) -> None:
    from rmutils.book.jobs.notebook_costs import estimate as cost_of
    from rmutils.book.jobs.notebook_costs import fitted, load_costs
    from rmutils.book.site.parameters import check_parameters, from_folder
    from rmutils.models.costs import slowness

    path = find_notebook(notebook)
    changed = from_folder(path, check_parameters(path, given), Path.cwd())
    costs = load_costs(path)
    size = fitted(costs, changed)
    found = cost_of(costs, size.values, slowness=slowness())
    if as_json:
        typer.echo(json.dumps(asdict(found) | {"seconds": found.seconds, "cut": size.cut},
                              indent=1))
        return
    lines = [f"time    {_clock(found.seconds)}", f"memory  {found.memory / 1e9:.1f} GB",
             f"disk    {max(found.disk / 1e6, 1):,.0f} MB", "", "The time is made up of"]
    lines += [f"  {_clock(step.seconds):>10}  {step.what}: {step.why}" for step in found.steps]
    lines.append(f"This machine takes {found.slowness:.2g} times as long just now as the one on "
                 "which the seconds were measured (data/timings.json).")
    lines += [f"{SMALLER}: {size.cuts()}"] * bool(size.cut)
    typer.echo("\n".join(lines))


def _clock(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _paper(changes: dict[str, str], accelerator: str, assume: list[str], jobs: bool,
           as_json: bool) -> None:
    from rmutils.book.chapters.scale import Assumptions
    from rmutils.book.jobs.studies import PaperConfig
    from rmutils.book.jobs.study_costs import estimate_paper

    assumed = Assumptions().changed(dict(word.partition("=")[::2] for word in assume))
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
        f"rmutils.book.chapters.scale.work. Hours without loading, waiting and repeats.")


def _size(size: float) -> str:
    return f"{size / 1e12:,.1f} TB" if size >= 1e12 else f"{size / 1e9:,.0f} GB"


def doctor(as_json: options.Json = False) -> None:
    """Say what is wrong on this machine, and the command that fixes it. Takes some seconds.

    Exit status 1 if something is wrong. Where nothing is installed yet: make doctor.

    Example: rmutils doctor
    """
    from rmutils.book.tools.doctor import examine, report

    raise typer.Exit(report(examine(python=sys.executable), as_json))


def claims(as_json: options.Json = False) -> None:
    """Judge the paper's claims by what is stored; nothing is computed that takes long.

    Each part has its effect and 95 % interval; where a result is not stored, the command that makes
    it is named.

    Example: rmutils claims --json
    """
    from rmutils.book.claims.claim_list import claim_table, judge, load_claims, part_table
    from rmutils.book.verdicts import VERDICTS

    judged = judge(load_claims())
    table, parts = claim_table(judged), part_table(judged)
    if as_json:
        of = {name: json.loads(rows.drop(columns="id").to_json(orient="records"))
              for name, rows in parts.groupby("id")}
        print(json.dumps([row | {"parts": of.get(row["id"], [])}
                          for row in table.to_dict("records")], indent=1, ensure_ascii=False))
        return
    for place, rows in groupby(table.itertuples(), key=lambda row: row.place):
        print(place)
        for row in rows:
            print(f"  {row.words} ({row.id})\n    \"{row.as_printed}\"")
            for part in parts[parts["id"] == row.id].itertuples():
                print(f"      {part.quantity} ({part.of}): {part.value:.3g} "
                      f"[{part.low:.3g}, {part.high:.3g}] {part.unit}; claimed {part.claimed}: "
                      f"{part.verdict}" + (f" ({part.blocked})" if part.blocked else ""))
            if row.note:
                print(f"      {row.note}")
    counts = table["verdict"].value_counts()
    print(f"{len(table)} claims: " + ", ".join(
        f"{counts[verdict]} {verdict}" for verdict in VERDICTS if verdict in counts))
