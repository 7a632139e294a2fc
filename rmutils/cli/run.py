"""`rmutils run`: a notebook of the book with other parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rmutils import paths
from rmutils.book import gallery
from rmutils.errors import UserError

app = typer.Typer(add_completion=False)


# Typer has no repeatable option with two values, so `-p` arrives among the arguments.
@app.command("run", context_settings={"ignore_unknown_options": True})
def run(
    notebook: Annotated[str, typer.Argument(help="A notebook of the book by name, or a path.")],
    parameters: Annotated[list[str] | None, typer.Argument(
        metavar="[-p NAME VALUE]...", help="Parameters to change. Lists: 1,2,3 or JSON.")] = None,
    name: Annotated[str, typer.Option(
        help="Name of this run; the copy is book/runs/NOTEBOOK/NAME.ipynb.")] = "latest",
    output: Annotated[Path | None, typer.Option(help="Write the executed copy here.")] = None,
    show: Annotated[bool, typer.Option("--list", help="List the parameters and stop.")] = False,
) -> None:
    """Run a notebook with other parameters and keep the executed copy.

    It becomes a page of the book at the next `make book`.

    Example: rmutils run 01_preliminaries -p tau 0.05 -p lengths 256,512 --name low-tau
    """
    from rmutils.notebooks import NotebookFailed, run_notebook
    from rmutils.parameters import describe, read_parameters

    path = find_notebook(notebook)
    if show:
        typer.echo(describe(read_parameters(path)) or f"{path.name} has no parameters")
        return
    if not gallery.NAME.fullmatch(name):
        raise UserError(f"{name!r} cannot be the name of a run: it becomes part of an address. Use "
                        "up to 100 letters, digits, '.', '_' and '-', not first '.' or '-'")
    target = (output or paths.BOOK / "runs" / path.stem / f"{name}.ipynb").absolute()
    try:
        run_notebook(path, target, pairs(parameters or []), progress=True)
    except NotebookFailed as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from None
    typer.echo(target)


def pairs(words: list[str]) -> dict[str, str]:
    """`-p NAME VALUE -p NAME VALUE ...` as a dictionary."""
    found = dict(zip(words[1::3], words[2::3], strict=False))
    if len(words) % 3 or set(words[::3]) - {"-p"} or len(found) < len(words) // 3:
        raise UserError(f"cannot read {' '.join(words)!r}: give each parameter once, "
                        "as -p NAME VALUE")
    return found


def find_notebook(name: str) -> Path:
    """The notebook of that path or name; `UserError` lists the names if there is none."""
    for path in (Path(name), paths.NOTEBOOKS / name, paths.NOTEBOOKS / f"{name}.ipynb"):
        if path.is_file():
            return path.resolve()
    known = ", ".join(sorted(p.stem for p in paths.NOTEBOOKS.glob("*.ipynb")))
    raise UserError(f"no notebook {name!r}; notebooks/ has {known or 'none'}")
