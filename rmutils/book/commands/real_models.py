"""The command `rmutils real-models`: what the plan for four real models asks for."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from rmutils.book.experiments.real_models import ITEMS, make
from rmutils.cli import options


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
