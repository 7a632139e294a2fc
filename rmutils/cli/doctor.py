"""`rmutils doctor`: what is wrong on this machine."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rmutils.doctor import examine, report

app = typer.Typer(add_completion=False)


@app.command("doctor")
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Say what is wrong on this machine, and the command that mends it. Takes some seconds.

    Exit status 1 if something is wrong. Where nothing is installed yet: make doctor.

    Example: rmutils doctor
    """
    raise typer.Exit(report(examine(python=sys.executable), as_json))
