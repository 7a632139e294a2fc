"""`rmutils retmask`: the whole method in one command."""

from __future__ import annotations

import json
from operator import attrgetter
from typing import Annotated

import typer

from rmutils.cli import options
from rmutils.cli.run import pairs
from rmutils.config import Config
from rmutils.errors import UserError

app = typer.Typer(add_completion=False)
MEANS = "means."


# Typer has no repeatable option with two values, so `-p` arrives among the arguments.
@app.command("retmask", context_settings={"ignore_unknown_options": True})
def retmask(
    model: Annotated[str, typer.Argument(help="Registry name, folder or hub id.")],
    parameters: Annotated[list[str] | None, typer.Argument(
        metavar="[-p NAME VALUE]...", help="What is to be different; see --list.")] = None,
    show: Annotated[bool, typer.Option("--list", help="List names and values, and stop.")] = False,
    workers: options.Workers = None,
    compute: Annotated[str, typer.Option(help="auto, always or never.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Detect, mask, generate pairs, train, detect again (sections 2 and 3).

    A run that was stopped goes on when the same command is given again. The recipe is named
    (embedded, paper or smoke), and its values can be changed one by one. Those of
    `means` say who answers, and over how many GPUs the training is shared.

    Example: rmutils retmask tiny-llama -p instructions 500 -p recipe.learning_rate 5e-5
    """
    from rmutils.training import RECIPES
    from rmutils.training.means import Means
    from rmutils.training.retmask import RetMaskConfig, run_retmask
    from rmutils.workers import default_workers

    if compute not in ("auto", "always", "never"):
        raise UserError(f"--compute {compute}: one of auto, always, never.")
    given = pairs(parameters or [])
    name = given.pop("recipe", "embedded")
    if name not in RECIPES:
        raise UserError(f"-p recipe {name}: one of {', '.join(RECIPES)}.")
    means = Means().changed({key.removeprefix(MEANS): given.pop(key)
                             for key in [*given] if key.startswith(MEANS)})
    config = RetMaskConfig(recipe=RECIPES[name]).changed(given)
    if show:
        _list(config)
        _list(means, MEANS)
        return
    run = run_retmask(model, config, compute=compute, means=means,
                      workers=workers or means.workers(default_workers()))
    summary = {
        "model": model, "artifact": run.artifact.name, "training": run.training,
        "heads": run.heads, "pairs": len(run.pairs), "dropped": run.dropped,
        "found_before": float(run.before.cases["success"].mean()),
        "found_after": float(run.after.cases["success"].mean()),
        "score_before": float(run.before.mean.mean()), "score_after": float(run.after.mean.mean()),
    }
    if as_json:
        typer.echo(json.dumps(summary, indent=1))
        return
    typer.echo(f"{len(run.pairs)} pairs, {sum(run.dropped.values())} dropped; "
               f"{len(run.heads)} heads masked.")
    typer.echo("needles found: {found_before:.3f} before, {found_after:.3f} after\n"
               "mean retrieval score of all heads: {score_before:.4f} before, {score_after:.4f} "
               "after".format(**summary))
    typer.echo(f"Stored as {run.artifact.name}; the weights are {run.training}.")


def _list(config: Config, before: str = "") -> None:
    for name in config.dotted_names():
        typer.echo(f"{before}{name} = {attrgetter(name)(config)}")
