"""The figures and tables of executed chapters, as they stand in the notebooks' files."""

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from rmutils.book.figures.report import MOST_ROWS, fold
from rmutils.book.site.gallery import entries, picture_file
from rmutils.book.site.parameters import load_notebook
from rmutils.core.files import read_yaml

TABLE = re.compile(r'<div class="rm-scroll".*?<p class="rm-caption">(.*?)</p>', re.DOTALL)
MADE = '<details class="rm-made">'


@dataclass(frozen=True)
class Item:
    """A figure or a table: the output of a cell."""

    kind: str
    anchor: str  # its place within the page
    label: str  # its name in the book, for references to it
    caption: str  # Markdown
    csv: str  # its data; empty if the output carries none
    phone: str  # its picture for a phone; empty if it has but one
    # `cell`, `output`: Which cell of the notebook, and which of the outputs that show something;
    # from 0.
    cell: int
    output: int
    code_cell: int  # which of the cells with code, from 1


def shown(cell: NotebookNode) -> list[NotebookNode]:
    """The outputs of a cell that are more than what it printed."""
    return [o for o in cell.get("outputs", []) if o.output_type in ("display_data",
                                                                    "execute_result")]


def items(notebook: NotebookNode, name: str) -> list[Item]:
    """All figures and tables of a chapter, in its order."""
    found: list[Item] = []
    counts = {"figure": 0, "table": 0}
    code = 0
    for number, cell in enumerate(notebook.cells):
        code += cell.cell_type == "code"
        for place, output in enumerate(shown(cell)):
            if not (what := kind_of(output)):
                continue
            counts[what] += 1
            anchor = f"{what[:3]}-{counts[what]}"
            given = cell.metadata.get("mystnb", {}).get("figure", {}).get("name")
            found.append(Item(
                what, anchor, given or f"{name}-{anchor}", _caption(cell, output),
                *(output.metadata.get("rmutils", {}).get(part, "") for part in ("csv", "phone")),
                number, place, code))
    return found


def thumbnail(notebook: NotebookNode, item: Item) -> str:
    """The picture of a figure in small, as HTML that links to nothing; empty for a table."""
    cell = notebook.cells[item.cell]
    picture = shown(cell)[item.output].data.get("image/svg+xml")
    if picture is None:
        return ""
    image = cell.metadata.get("mystnb", {}).get("image", {})
    alt = html.escape(image.get("alt", item.caption), quote=True)
    file = picture_file(picture)
    return f'<img class="rm-thumb" src="_images/{file}" alt="{alt}" loading="lazy"> '


def notes(notebook: NotebookNode, item: Item) -> list[tuple[int, int]]:
    """The notes on how it was made: cells and outputs before the next text, figure or table."""
    found = []
    for number, cell in enumerate(notebook.cells[item.cell:], item.cell):
        for place, output in enumerate(shown(cell)):
            if (number, place) <= (item.cell, item.output):
                continue
            if kind_of(output):
                return found
            if MADE in output.data.get("text/html", ""):
                found.append((number, place))
        if cell.cell_type != "code":
            return found
    return found


def rows_of_notes(notebook: NotebookNode) -> Iterator[list[tuple[int, int]]]:
    """Yield the notes that follow each other with nothing between them, as cells and outputs."""
    row: list[tuple[int, int]] = []
    for number, cell in enumerate(notebook.cells):
        kinds = [MADE in output.data.get("text/html", "") for output in shown(cell)]
        for place, is_note in enumerate(kinds if cell.cell_type == "code" else [False]):
            if is_note:
                row.append((number, place))
            elif row:
                yield row
                row = []
    if row:
        yield row


def chapters(book: Path) -> Iterator[tuple[str, NotebookNode]]:
    """Name and executed notebook of each chapter, in the order of the table of contents."""
    contents = read_yaml(book / "_toc.yml")
    for file in (contents["root"], *(entry["file"] for entry in entries(contents))):
        if file.startswith("chapters/"):
            yield file.removeprefix("chapters/"), load_notebook(book / f"{file}.ipynb")


def by_part(book: Path) -> Iterator[tuple[str, list[tuple[str, NotebookNode]]]]:
    """Caption of each part of the table of contents that has chapters, and these."""
    contents = read_yaml(book / "_toc.yml")
    known = dict(chapters(book))
    for part in contents["parts"]:
        names = [entry["file"].removeprefix("chapters/") for entry in entries(part)]
        if found := [(name, known[name]) for name in names if name in known]:
            yield part["caption"], found


def title(notebook: NotebookNode) -> str:
    """The text of the first heading, as Markdown."""
    text = "\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return found[1].strip() if found else "Without a title"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], sides: str = "",
          options: Mapping[str, str] | None = None) -> list[str]:
    """Lines of a Markdown table; with options, those of MyST's directive."""
    lines = [f"| {' | '.join(head)} |", sides or "|:--|" + "--:|" * (len(head) - 1),
             *(f"| {' | '.join(map(str, row))} |" for row in rows)]
    named = [f":{name}: {value}" for name, value in (options or {}).items()]
    return ["```{table}", *named, "", *lines, "```"] if options else lines


def folded(table: list[str], rows: int, line: str = "") -> list[str]:
    """Markdown of a table, folded like those of the chapters if it has more than twelve rows."""
    if rows <= MOST_ROWS and not line:
        return table
    begin, end = fold("\0", rows, line).split("\0")
    return [*_raw(begin), *table, *_raw(end)]


def _raw(tags: str) -> list[str]:
    return ["", "```{raw} html", tags, "```", ""]


def literal(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text)


def kind_of(output: NotebookNode) -> str | None:
    """Return whether an output is a "figure", a "table" or neither."""
    if any(form.startswith("image/") for form in output.data):
        return "figure"
    return "table" if TABLE.match(output.data.get("text/html", "")) else None


def _caption(cell: NotebookNode, output: NotebookNode) -> str:
    if table := TABLE.match(output.data.get("text/html", "")):
        return literal(html.unescape(table[1]))
    shown = cell.metadata.get("mystnb", {})
    return shown.get("figure", {}).get("caption") or shown.get("image", {}).get("alt", "")
