"""`rmutils collect`: results of the official HELMET, in the table of `rmutils evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rmutils.cli import options


def collect(
    folder: Annotated[Path, typer.Argument(help="HELMET's output folder of one model.")],
    as_json: options.Json = False,
) -> None:
    """Read HELMET's result files, store them, and show their averages.

    Example: rmutils collect HELMET/output/Llama-3.1-8B-Instruct
    """
    from rmutils.cli.evaluate import show
    from rmutils.evaluation.longcontext.averages import averages
    from rmutils.evaluation.longcontext.collect import collect_stored
    from rmutils.evaluation.longcontext.official import HELMET

    table, artifact = collect_stored(folder)
    about = {"model": artifact.manifest["facts"]["model"], "artifact": artifact.name}
    show(averages(table, HELMET), about, as_json)
