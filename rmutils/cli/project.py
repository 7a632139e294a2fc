"""Commands about the project: `rmutils run`, `estimate`, `artifacts`, `doctor`."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from rmutils.cli import options
from rmutils.cli.from_configs import OpenCommand, pairs
from rmutils.core import paths
from rmutils.core.catalog import stored_results
from rmutils.core.errors import UserError, did_you_mean
from rmutils.core.results import Artifact, find, promote, remove, roots, seal, stored, unchecked

NotebookParameters = Annotated[list[str] | None, typer.Option(
    "-p", metavar="NAME VALUE", show_default=False,
    help="A parameter of the notebook; --NAME VALUE does the same. Lists: 1,2,3 or JSON.")]


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
    from rmutils.estimate import fitted, load_costs
    from rmutils.site.gallery import NAME
    from rmutils.site.notebooks import NotebookFailed, run_notebook, write_page
    from rmutils.site.parameters import check_parameters, describe, from_folder, read_parameters

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
            typer.echo(size.told(), err=True, nl=bool(size.cut))
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
    from rmutils import estimate as known
    from rmutils.site.parameters import check_parameters, from_folder

    path = find_notebook(notebook)
    changed = from_folder(path, check_parameters(path, given), Path.cwd())
    costs = known.load_costs(path)
    size = known.fitted(costs, changed)
    found = known.estimate(costs, size.values, slowness=known.slowness())
    if as_json:
        typer.echo(json.dumps(asdict(found) | {"seconds": found.seconds, "cut": size.cut},
                              indent=1))
        return
    lines = [f"time    {_clock(found.seconds)}", f"memory  {found.memory / 1e9:.1f} GB",
             f"disk    {max(found.disk / 1e6, 1):,.0f} MB", "", "The time is made up of"]
    lines += [f"  {_clock(step.seconds):>10}  {step.what}: {step.why}" for step in found.steps]
    lines.append(f"This machine takes {found.slowness:.2g} times as long just now as the one on "
                 "which the seconds were measured (data/timings.json).")
    typer.echo("\n".join([*lines, *filter(None, [size.told()])]))


def _clock(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _paper(changes: dict[str, str], accelerator: str, assume: list[str], jobs: bool,
           as_json: bool) -> None:
    from rmutils.estimate.study_costs import estimate_paper
    from rmutils.experiments.scale import Assumptions
    from rmutils.study.studies import PaperConfig

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
        f"rmutils.experiments.scale.work. Hours without loading, waiting and repeats.")


def _size(size: float) -> str:
    return f"{size / 1e12:,.1f} TB" if size >= 1e12 else f"{size / 1e9:,.0f} GB"


artifacts_app = typer.Typer(
    no_args_is_help=True, help="Stored results: list, fetch, verify, seal, show, promote, rm.")


def _named(name: str) -> Artifact:
    if (artifact := find(name)) is None:
        raise _unknown(name)
    return artifact


def _unchecked(name: str) -> Artifact:
    """The user's own, damaged or not."""
    if (artifact := next(unchecked(name), None)) is None:
        raise _unknown(name)
    return artifact


def _unknown(name: str) -> UserError:
    near = did_you_mean(name, [artifact.name for artifact in stored()])
    return UserError(f"no result is called {name!r}.{near} See `rmutils artifacts list`.")


@artifacts_app.command("list")
def list_artifacts(
    text: Annotated[str, typer.Argument(help="Those whose name has this text.")] = "",
    model: Annotated[str | None, typer.Option(help="Those about this model.")] = None,
    kind: Annotated[str | None, typer.Option(
        help="Those of this kind: detect, evaluation, retmask, train, ...")] = None,
    own: Annotated[bool, typer.Option("--own", help="Without the shipped ones.")] = False,
    as_json: options.Json = False,
) -> None:
    """List stored results: the user's own, then the ones that ship with the project.

    Example: rmutils artifacts list --model tiny-llama --kind detect
    """
    chapters, found = _chapters(), stored_results(kind, model)
    rows = [{"name": a.name, "key": a.key, "model": a.model, **_training(a.label),
             "chapters": chapters.get(a.stage, []), "shipped": a.shipped, "bytes": a.bytes,
             "created": a.created, "command": a.command}
            for a in found.itertuples() if text in a.name and not (own and a.shipped)]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    width = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        print(f"{row['name']:{width}}  {'shipped' if row['shipped'] else 'own':7}  "
              f"{row['created'][:10]:10}  {row['bytes'] / 1e6:8.1f} MB  "
              f"{', '.join(row['chapters'])}".rstrip())
    print(f"{len(rows)} results, {sum(row['bytes'] for row in rows) / 1e6:.1f} MB.")


@artifacts_app.command("fetch")
def fetch_artifacts(
    where: Annotated[str, typer.Argument(
        help="A release, which is what `make archive` packs, unpacked: a folder, or an address "
             "that begins with http://, https:// or file://.")],
    text: Annotated[str, typer.Argument(help="Those whose name has this text.")] = "",
) -> None:
    """Bring results of a release that are not here yet, checked; print their names.

    Example: rmutils artifacts fetch retmask-reproduced detect/tiny-llama
    """
    from rmutils.core.server import fetch_results

    found = fetch_results(where, text)
    print("\n".join(a.name for a in found) if found else "All these results are here already.")


@artifacts_app.command("rm")
def remove_artifacts(
    names: Annotated[list[str], typer.Argument(help="As `rmutils artifacts list` shows them.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove results from the cache, damaged ones too, but none that ship with the project.

    Example: rmutils artifacts rm detect/tiny-llama/256-512-0123abcd
    """
    for artifact in [*map(_unchecked, names)]:
        if yes or typer.confirm(f"Remove {artifact.name} ({artifact.size / 1e6:.1f} MB)?"):
            remove(artifact)
            print(f"Removed {artifact.name}.")


def _training(label: str) -> dict[str, str | int | None]:
    """Return strategy and seed of the training that a result is about, from its folder's name."""
    found = re.match(r"(.+)-seed(\d+)(?:-|$)", label)
    return {"training": found[1] if found else None, "seed": int(found[2]) if found else None}


def _chapters() -> dict[str, list[str]]:
    """Stage -> the notebooks that say that they read results of it; `10_claims` reads all."""
    found: dict[str, list[str]] = {}
    for notebook in sorted(paths.NOTEBOOKS.glob("*.ipynb")):
        metadata = json.loads(notebook.read_text(encoding="utf-8"))["metadata"]
        for pattern in metadata.get("rmutils", {}).get("data", []):
            if pattern.startswith("data/artifacts/") and (stage := pattern.split("/")[2]) != "*":
                found.setdefault(stage, []).append(notebook.stem)
    return found


@artifacts_app.command()
def verify() -> None:
    """Check every payload against its manifest. Exit status 1 if one does not match or cannot be
    read."""
    problems = [problem for artifact in stored() for problem in artifact.problems()]
    problems += [f"{folder}: cannot be read" for root in roots()
                 for folder in paths.closed_folders(root)]
    print("\n".join(problems) if problems else "All stored results match their manifests.")
    raise typer.Exit(1 if problems else 0)


@artifacts_app.command("seal")
def seal_artifacts(
    names: Annotated[list[str] | None, typer.Argument(
        help="As `rmutils artifacts list` shows them. Default: all.", show_default=False)] = None,
) -> None:
    """Check results of version 1.0 against their keys and files, and seal their manifests.

    From then on no change of a manifest goes unnoticed. What was changed before cannot be seen in
    command, facts and environment: seal only what you trust.

    Example: rmutils artifacts seal
    """
    problems = []
    for artifact in [*map(_unchecked, names)] if names else stored():
        try:
            if seal(artifact):
                print(f"Sealed {artifact.name}.")
        except UserError as error:
            problems.append(str(error))
    if problems:
        raise UserError("\n".join(problems))


@artifacts_app.command()
def show(name: str) -> None:
    """Print a result's manifest.

    Example: rmutils artifacts show retmask/tiny-llama/retmask-seed3-7d88cd44
    """
    print(json.dumps(_named(name).manifest, indent=1, ensure_ascii=False))


@artifacts_app.command("promote")
def promote_artifact(name: str) -> None:
    """Copy a result from the cache to those that ship with the project."""
    print(promote(_named(name)).name)


def doctor(as_json: options.Json = False) -> None:
    """Say what is wrong on this machine, and the command that fixes it. Takes some seconds.

    Exit status 1 if something is wrong. Where nothing is installed yet: make doctor.

    Example: rmutils doctor
    """
    from rmutils.doctor import examine, report

    raise typer.Exit(report(examine(python=sys.executable), as_json))
