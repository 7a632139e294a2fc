"""`rmutils artifacts`: stored results."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from rmutils.artifacts import Artifact, find, promote, stored
from rmutils.errors import UserError

app = typer.Typer(no_args_is_help=True, help="Stored results: list, verify, show, promote.")


def _named(name: str) -> Artifact:
    if (artifact := find(name)) is None:
        raise UserError(f"no result is called {name!r}. See `rmutils artifacts list`.")
    return artifact


@app.command("list")
def list_artifacts(as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """All stored results: the user's own, then the ones that ship with the project."""
    rows = [{"name": a.name, "shipped": a.shipped, "command": a.manifest.get("command")}
            for a in stored() if not a.problems()]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print(f"{row['name']}  {'shipped' if row['shipped'] else 'own    '}  {row['command']}")


@app.command()
def verify() -> None:
    """Check every payload against its manifest. Exit status 1 if one does not match."""
    problems = [problem for artifact in stored() for problem in artifact.problems()]
    print("\n".join(problems) if problems else "All stored results match their manifests.")
    raise typer.Exit(1 if problems else 0)


@app.command()
def show(name: str) -> None:
    """Print a result's manifest.

    Example: rmutils artifacts show detect-0123456789abcdef
    """
    print(json.dumps(_named(name).manifest, indent=1, ensure_ascii=False))


@app.command("promote")
def promote_artifact(name: str) -> None:
    """Copy a result from the cache to those that ship with the project."""
    print(promote(_named(name)).name)
