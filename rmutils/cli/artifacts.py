"""`rmutils artifacts`: stored results, listed, fetched, checked, shown, removed."""

from __future__ import annotations

import json
import re
from typing import Annotated

import typer

from rmutils.cli import options
from rmutils.core import paths
from rmutils.core.catalog import stored_results
from rmutils.core.errors import UserError, did_you_mean
from rmutils.core.results import Artifact, find, promote, remove, roots, seal, stored, unchecked

artifacts_app = typer.Typer(
    no_args_is_help=True, help="Stored results: list, fetch, verify, seal, show, promote, rm.")


def _named(name: str, *, damaged: bool = False) -> Artifact:
    """Return a result by its name; the user's own, if `damaged` ones will do."""
    if artifact := next(unchecked(name), None) if damaged else find(name):
        return artifact
    near = did_you_mean(name, [artifact.name for artifact in stored()])
    raise UserError(f"no result is called {name!r}.{near} See `rmutils artifacts list`.")


@artifacts_app.command("list")
def list_artifacts(
    text: Annotated[str, typer.Argument(help="Those whose name has this text.")] = "",
    model: Annotated[str | None, typer.Option(help="Those about this model.")] = None,
    kind: Annotated[str | None, typer.Option(
        help="Those of this kind: detect, evaluation, retmask, train, ...")] = None,
    own: Annotated[bool, typer.Option("--own", help="Without the shipped ones.")] = False,
    as_json: options.Json = False,
) -> None:
    """List stored results: the user's own, then the ones that ship with the project.

    Example: rmutils artifacts list --model tiny-llama --kind detect
    """
    chapters, found = _chapters(), stored_results(kind, model)
    rows = [{"name": a.name, "key": a.key, "model": a.model, **_training(a.label),
             "chapters": chapters.get(a.stage, []), "shipped": a.shipped, "bytes": a.bytes,
             "created": a.created, "command": a.command}
            for a in found.itertuples() if text in a.name and not (own and a.shipped)]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    width = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        print(f"{row['name']:{width}}  {'shipped' if row['shipped'] else 'own':7}  "
              f"{row['created'][:10]:10}  {row['bytes'] / 1e6:8.1f} MB  "
              f"{', '.join(row['chapters'])}".rstrip())
    print(f"{len(rows)} results, {sum(row['bytes'] for row in rows) / 1e6:.1f} MB.")


@artifacts_app.command("fetch")
def fetch_artifacts(
    where: Annotated[str, typer.Argument(
        help="A release, which is what `make archive` packs, unpacked: a folder, or an address "
             "that begins with http://, https:// or file://.")],
    text: Annotated[str, typer.Argument(help="Those whose name has this text.")] = "",
) -> None:
    """Bring results of a release that are not here yet, checked; print their names.

    Example: rmutils artifacts fetch retmask-reproduced detect/tiny-llama
    """
    from rmutils.core.server import fetch_results

    found = fetch_results(where, text)
    print("\n".join(a.name for a in found) if found else "All these results are here already.")


@artifacts_app.command("rm")
def remove_artifacts(
    names: Annotated[list[str], typer.Argument(help="As `rmutils artifacts list` shows them.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove results from the cache, damaged ones too, but none that ship with the project.

    Example: rmutils artifacts rm detect/tiny-llama/256-512-0123abcd
    """
    for artifact in [_named(name, damaged=True) for name in names]:
        if yes or typer.confirm(f"Remove {artifact.name} ({artifact.size / 1e6:.1f} MB)?"):
            remove(artifact)
            print(f"Removed {artifact.name}.")


def _training(label: str) -> dict[str, str | int | None]:
    """Return strategy and seed of the training that a result is about, from its folder's name."""
    found = re.match(r"(.+)-seed(\d+)(?:-|$)", label)
    return {"training": found[1] if found else None, "seed": int(found[2]) if found else None}


def _chapters() -> dict[str, list[str]]:
    """Stage -> the notebooks that say that they read results of it; `10_claims` reads all."""
    found: dict[str, list[str]] = {}
    for notebook in sorted(paths.NOTEBOOKS.glob("*.ipynb")):
        metadata = json.loads(notebook.read_text(encoding="utf-8"))["metadata"]
        for pattern in metadata.get("rmutils", {}).get("data", []):
            if pattern.startswith("data/artifacts/") and (stage := pattern.split("/")[2]) != "*":
                found.setdefault(stage, []).append(notebook.stem)
    return found


@artifacts_app.command()
def verify() -> None:
    """Check every payload against its manifest. Exit status 1 if one does not match or cannot be
    read."""
    problems = [problem for artifact in stored() for problem in artifact.problems()]
    problems += [f"{folder}: cannot be read" for root in roots()
                 for folder in paths.closed_folders(root)]
    print("\n".join(problems) if problems else "All stored results match their manifests.")
    raise typer.Exit(1 if problems else 0)


@artifacts_app.command("seal")
def seal_artifacts(
    names: Annotated[list[str] | None, typer.Argument(
        help="As `rmutils artifacts list` shows them. Default: all.", show_default=False)] = None,
) -> None:
    """Check results of version 1.0 against their keys and files, and seal their manifests.

    From then on no change of a manifest goes unnoticed. What was changed before cannot be seen in
    command, facts and environment: seal only what you trust.

    Example: rmutils artifacts seal
    """
    problems = []
    for artifact in [_named(name, damaged=True) for name in names] if names else stored():
        try:
            if seal(artifact):
                print(f"Sealed {artifact.name}.")
        except UserError as error:
            problems.append(str(error))
    if problems:
        raise UserError("\n".join(problems))


@artifacts_app.command()
def show(name: str) -> None:
    """Print a result's manifest.

    Example: rmutils artifacts show retmask/tiny-llama/retmask-seed3-7d88cd44
    """
    print(json.dumps(_named(name).manifest, indent=1, ensure_ascii=False))


@artifacts_app.command("promote")
def promote_artifact(name: str) -> None:
    """Copy a result from the cache to those that ship with the project."""
    print(promote(_named(name)).name)
