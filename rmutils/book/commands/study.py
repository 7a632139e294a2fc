"""The command `rmutils study`: from the models to the book, here or on a cluster."""

import json
from pathlib import Path
from typing import Annotated

import typer

from rmutils.book.jobs.studies import STUDIES, PaperConfig, study_of
from rmutils.cli import options
from rmutils.cli.from_configs import Part, configured
from rmutils.core import paths
from rmutils.core.errors import UserError


@configured(changes=Part(PaperConfig(), raw=True))
def study(
    changes: dict[str, str],
    profile: Annotated[str, typer.Option(
        metavar=f"[{'|'.join(STUDIES)}]", help="Which study.")] = "smoke",
    on: Annotated[str, typer.Option(
        metavar="[local|slurm|FOLDER]",
        help="Here, on SLURM, or a folder with your own config.yaml for Snakemake.")] = "local",
    book: Annotated[bool, typer.Option(
        help="Run the notebooks and build the pages, too.")] = True,
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

    Example: rmutils study --profile paper --models qwen3-8b --compute-backend.launch.nodes 2 --list
    """
    from rmutils.book.jobs.jobs import home, record_of, run_study, settle
    from rmutils.book.jobs.plan import plan
    from rmutils.book.site.build import BuildFailed

    if known:
        options.list_values(PaperConfig().changed(changes))
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
    if not project.is_dir():
        raise UserError(f"--project {project}: no such folder, with notebooks/ and book/.")
    try:
        run_study(profile, root=project.resolve(), on=on, book=book, changes=changes)
    except BuildFailed as error:
        typer.echo(f"\n{error}", err=True)
        raise typer.Exit(1) from None
