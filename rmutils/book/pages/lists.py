"""Lists of what the chapters hold: figures and tables, parameters; and what a chapter said."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from pathlib import Path

from nbformat import NotebookNode

from rmutils.book.pages.items import chapters, items, kind, literal, shown, title
from rmutils.errors import UserError
from rmutils.parameters import read_parameters


def figures_and_tables(book: Path) -> str:
    """Number, link and caption of all figures and tables, by chapter."""
    parts = []
    for name, notebook in chapters(book):
        lines = [f"- {{numref}}`{item.label}`: {item.caption}" for item in items(notebook, name)]
        if lines:
            parts += [f"## {title(notebook)}", "", *lines, ""]
    return "\n".join(parts)


def parameters(book: Path) -> str:
    """All parameters of the chapters by name: type, default, meaning, chapters."""
    places = defaultdict(list)
    for name, _ in chapters(book):
        for p in read_parameters(book / "chapters" / f"{name}.ipynb").values():
            places[p.name, p.annotation, repr(p.default), p.comment].append(name)
    lines, last = [], ""
    for (name, typed, default, meaning), where in sorted(places.items()):
        lines += [f"- **`{name}`**"] * (name != last)
        lines += [f"  - `{typed}` = `{default}`: {literal(meaning)} ({_links(where)})"]
        last = name
    return "\n".join(lines)


def said(book: Path, chapter: str, cell: str) -> str:
    """What a cell of a chapter computed: its text or its table.

    Raises
    ------
    UserError
        There is no such cell, or it said nothing.
    """
    for name, notebook in chapters(book):
        for one in notebook.cells if name == chapter else ():
            texts = [*filter(None, map(_text, shown(one)))]
            if one.get("id") == cell and texts:
                return "\n\n".join(texts)
    raise UserError(f"the chapter {chapter} has no cell {cell!r} that says something")


def _text(output: NotebookNode) -> str | None:
    """Markdown of a text, or of a table's data."""
    if kind(output) != "table":
        return output.data.get("text/markdown")
    head, *rows = csv.reader(io.StringIO(output.metadata["rmutils"]["csv"]))
    lines = [map(literal, head), ["---"] * len(head), *(map(literal, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _links(names: list[str]) -> str:
    return ", ".join(f"{{doc}}`{_short(name)} <chapters/{name}>`" for name in names)


def _short(name: str) -> str:
    """The number of a chapter, or its name where it has none."""
    number = name.partition("_")[0]
    return str(int(number)) if number.isdigit() else name
