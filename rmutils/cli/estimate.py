"""`rmutils estimate`: what a run of a notebook will cost."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from rmutils.cli.run import find_notebook, pairs

app = typer.Typer(add_completion=False)


@app.command("estimate", context_settings={"ignore_unknown_options": True})
def estimate(
    notebook: Annotated[str, typer.Argument(help="A notebook of the book by name, or a path.")],
    parameters: Annotated[list[str] | None, typer.Argument(
        metavar="[-p NAME VALUE]...", help="Parameters, as for `rmutils run`.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say how many minutes, how much memory and disk a run will take, and why.

    Nothing is run but a fraction of a second of work that shows how fast this machine is just now.
    Expect the time to be right within a factor of 2.

    Example: rmutils estimate 02_masking_sweep -p model tiny-qwen3
    """
    from rmutils import estimate as known
    from rmutils.parameters import check_parameters

    path = find_notebook(notebook)
    changed = check_parameters(path, pairs(parameters or []))
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
