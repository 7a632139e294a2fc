"""`python -m rmutils.evaluation.savings MEASUREMENT MODEL CONFIGURATION`: one stored result."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from pydantic import ValidationError

from rmutils.errors import UserError
from rmutils.evaluation.savings.store import MEASUREMENTS, saved

Name = StrEnum("Name", {name: name for name in MEASUREMENTS})


def run(
    measurement: Annotated[Name, typer.Argument(help="What is measured.")],
    model: Annotated[str, typer.Argument(
        help="Registry name, folder, .gguf file or hub id.")],
    configuration: Annotated[str, typer.Argument(
        help="JSON of what differs from the defaults of the measurement.")] = "{}",
) -> None:
    """Measure a model, and print where the result is kept.

    Example: python -m rmutils.evaluation.savings recall tiny-llama '{"p": [0.9, 0.5]}'
    """
    try:
        config = MEASUREMENTS[measurement].config.model_validate_json(configuration)
        typer.echo(saved(model, config)[1].folder)
    except (UserError, ValidationError) as error:
        typer.echo(f"rmutils: {error}", err=True)
        raise typer.Exit(2) from error


if __name__ == "__main__":
    typer.run(run)
