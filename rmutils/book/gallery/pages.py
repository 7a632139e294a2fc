"""The pages of runs, made for one build: they stand in the copy of the book that is rendered."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from rmutils.book.gallery.outputs import SIDES, compared, title
from rmutils.book.gallery.runs import FOLDER, Run, files

PAGE = "run_gallery"
"""The page of the book that explains runs; the pages of runs stand under it."""

NONE = "There is none yet: the book has been built with the chapters' own parameters only.\n"


def write(root: Path, book: Path) -> None:
    """Write the pages of a project's runs into a copy of its book, and name them in its contents.

    Parameters
    ----------
    root : Path
        The project.
    book : Path
        A copy of its folder `book`, chapters included. Without the page `run_gallery` nothing is
        written.
    """
    gallery = book / f"{PAGE}.md"
    if not gallery.exists():
        return
    runs = [Run(f, book / "chapters" / f"{f.parent.name}.ipynb") for f in files(root)]
    for run in runs:
        target = book / f"{run.page}.ipynb"
        target.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(page(run), target)
        whole = book / FOLDER / "executed" / run.notebook / f"{run.name}.ipynb"
        whole.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(run.executed, whole)
    with gallery.open("a", encoding="utf-8") as file:
        file.write(f"\n{listing(runs) if runs else NONE}")
    contents = book / "_toc.yml"
    toc = yaml.safe_load(contents.read_text(encoding="utf-8"))
    for entry in _entries(toc) if runs else []:
        if entry["file"] == PAGE:
            entry["sections"] = [{"file": run.page, "title": f"{run.notebook}: {run.name}"}
                                 for run in runs]
    contents.write_text(yaml.safe_dump(toc, sort_keys=False), encoding="utf-8")


def _entries(node: Any) -> Iterator[dict]:
    """All entries of a table of contents that name a file."""
    if isinstance(node, dict) and "file" in node:
        yield node
    for child in node.values() if isinstance(node, dict) else node:
        if isinstance(child, dict | list):
            yield from _entries(child)


def listing(runs: list[Run]) -> str:
    """A table of all runs, as MyST text."""
    rows = [f'<td><a href="{run.page}.html">{run.notebook}: {run.name}</a></td>'
            f"<td>{', '.join(f'{k} = {_shown(v)}' for k, v in run.changed.items()) or 'none'}</td>"
            f"<td>{_when(run)}</td>" for run in runs]
    table = _table("The runs of this book", ["run", "changed parameters", "made"], rows)
    return f"```{{raw}} html\n{table}\n```\n"


def _shown(value: Any) -> str:
    """A parameter's value on one line of HTML."""
    return f"<code>{html.escape(json.dumps(value, ensure_ascii=False))}</code>"


def _when(run: Run) -> str:
    started = html.escape(str(run.record["started"])[:16].replace("T", " "))
    return f"{started}, in {float(run.record['seconds']):,.0f} s"


def _table(caption: str, names: list[str], rows: list[str]) -> str:
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (f'<div class="rm-scroll" tabindex="0" role="region" aria-label="{caption}">'
            f'<p class="rm-caption">{caption}</p><table class="rm-table"><thead><tr>{head}</tr>'
            f"</thead><tbody>{body}</tbody></table></div>")


def page(run: Run) -> nbformat.NotebookNode:
    """The page of a run: its parameters, and its outputs beside those of the chapter."""
    about = new_output("display_data", {"text/html": _parameters(run)})
    cells = [new_markdown_cell("\n\n".join(_introduction(run))),
             new_code_cell("# parameters", outputs=[about], metadata={"tags": ["remove-input"]}),
             *compared(run.executed, run.default)]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    # Two columns need the room of the page's own contents.
    return new_notebook(cells=cells, metadata={
        "kernelspec": kernel, "html_theme.sidebar_secondary.remove": "true"})


def _introduction(run: Run) -> Iterator[str]:
    yield f"# {run.name}: {title(run.default) or run.notebook}"
    file = f"/{FOLDER}/executed/{run.notebook}/{run.name}.ipynb"
    whole = f"{{download}}`the executed notebook <{file}>`"
    if run.default is None:
        yield (f"A run of `{run.notebook}`, which is no chapter of this book any more: there is "
               f"nothing to hold its outputs against. Its code and prose: {whole}.")
        return
    yield (f"{{doc}}`The chapter </chapters/{run.notebook}>` with other parameters, and what came "
           "out beside what the chapter shows. The prose is the chapter's and is left out. All of "
           f"the run: {whole}.")
    if _code(run.executed) != _code(run.default):
        yield ("**The chapter has changed since this run was made.** Differences may come from "
               "that. Make the run again with the command below.")


def _code(notebook: nbformat.NotebookNode) -> list[str]:
    """What was executed, but for the parameters."""
    own = {"parameters", "injected-parameters"}
    return [cell.source for cell in notebook.cells
            if cell.cell_type == "code" and not own & {*cell.metadata.get("tags", [])}]


def _parameters(run: Run) -> str:
    """A table of the parameters, changed ones marked, with time and command."""
    rows = []
    for name, value in run.record["parameters"].items():
        usual = _shown(run.usual[name]) if name in run.usual else ""
        new = f"<mark>{_shown(value)}</mark> changed" if name in run.changed else _shown(value)
        rows.append(f"<td>{html.escape(name)}</td><td>{usual}</td><td>{new}</td>")
    rows.sort(key=lambda row: "<mark>" not in row)
    return (_table("Parameters", ["parameter", *SIDES.values()], rows)
            + f'<p>Made {_when(run)}. Make it again:</p><div class="rm-scroll" tabindex="0" '
            f'role="region" aria-label="Command"><pre>{html.escape(run.command)}</pre></div>')
