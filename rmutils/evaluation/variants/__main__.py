"""`python -m rmutils.evaluation.variants MODEL CONFIGURATION`: one stored measurement."""

from __future__ import annotations

from typing import Annotated

import typer
from pydantic import ValidationError

from rmutils.errors import UserError
from rmutils.evaluation.variants import VariantConfig, measure_stored


def run(
    model: Annotated[str, typer.Argument(
        help="Registry name, folder, .gguf file, hub id, or a stored training.")],
    configuration: Annotated[str, typer.Argument(
        help="JSON of what differs from the defaults of VariantConfig.")] = "{}",
) -> None:
    """Measure a model under a variant of its attention, and print where the result is kept.

    Example: python -m rmutils.evaluation.variants tiny-llama '{"variant": {"kind": "ms-poe"}}'
    """
    try:
        config = VariantConfig.model_validate_json(configuration)
        typer.echo(measure_stored(model, config)[1].folder)
    except (UserError, ValidationError) as error:
        typer.echo(f"rmutils: {error}", err=True)
        raise typer.Exit(2) from error


if __name__ == "__main__":
    typer.run(run)
