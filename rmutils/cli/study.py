"""`rmutils study`: all that the book rests on, from the models to the pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from rmutils import paths
from rmutils.cli import options
from rmutils.cli.run import pairs

app = typer.Typer(add_completion=False)


# Typer has no repeatable option with two values, so `-p` arrives among the arguments.
@app.command("study", context_settings={"ignore_unknown_options": True})
def study(
    parameters: Annotated[list[str] | None, typer.Argument(
        metavar="[-p NAME VALUE]...", help="Of the profile paper: what is to be different; see "
                                           "--parameters.")] = None,
    profile: Annotated[str, typer.Option(help="smoke, embedded or paper.")] = "smoke",
    on: Annotated[str, typer.Option(
        help="local, slurm, or a folder with your own config.yaml for Snakemake.")] = "local",
    book: Annotated[bool, typer.Option(
        help="Whether notebooks and pages follow.")] = True,
    project: Annotated[Path, typer.Option(
        help="Folder with notebooks/ and book/.", show_default="this one")] = paths.ROOT,
    show: Annotated[bool, typer.Option(
        "--list", help="List the jobs, and stop; nothing is loaded or started.")] = False,
    known: Annotated[bool, typer.Option(
        "--parameters", help="List names and values of the profile paper, and stop.")] = False,
    as_json: options.Json = False,
) -> None:
    """Fetch, detect, mask, generate, pair, train, evaluate; then run notebooks and build the book.

    What is stored is not done again, and a study that was stopped goes on.

    Example: rmutils study --profile smoke --no-book

    Example: rmutils study --profile embedded --on slurm

    Example: rmutils study --profile paper -p models qwen3-8b -p means.launch.nodes 2 --list
    """
    from rmutils.graph import BuildFailed
    from rmutils.study.plan import plan
    from rmutils.study.records import home, record_of, settle
    from rmutils.study.running import run_study
    from rmutils.study.studies import study_of

    changes = pairs(parameters or [])
    if known:
        _list_parameters(changes)
        return
    if show or as_json:
        jobs, folder = plan(study_of(profile, changes)), home(profile)
        settle(jobs, folder)
        rows = [{"job": name, "done": record_of(folder, name).exists(),
                 **job.resources.model_dump()} for name, job in jobs.items()]
        if as_json:
            typer.echo(json.dumps(rows, indent=1))
            return
        for row in rows:
            typer.echo(f"{'done' if row['done'] else 'to do'}  {row['job']}")
        return
    try:
        run_study(profile, root=project.resolve(), on=on, book=book, changes=changes)
    except BuildFailed as error:
        typer.echo(f"\n{error}", err=True)
        raise typer.Exit(1) from None


def _list_parameters(changes: dict[str, str]) -> None:
    from rmutils.study.paper import PaperConfig

    config = PaperConfig().changed(changes)
    for name in config.dotted_names():
        value = config
        for part in name.split("."):
            value = getattr(value, part)
        typer.echo(f"{name} = {value}")
