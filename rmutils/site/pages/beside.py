"""Beside each figure and table of a chapter: its picture, data and notebook, and how it was made.

Outputs carry their data as CSV (`rmutils.figures.report.table`, `rmutils.figures.drawn`). Here they
become files beside the pages, tables get numbers as figures have them, and what no note explains
(`rmutils.figures.report.made_by`) gets one from the record of the chapter's run.
"""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from nbformat import NotebookNode

from rmutils.figures.report import how_made
from rmutils.site.pages.items import Item, items, notes, rows_of_notes
from rmutils.site.parameters import as_word, load_notebook

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator

DATA = "_downloads"
"""Folder of the data, beside the pages."""
LIST = re.compile(r"<dl>.*</dl>", re.DOTALL)
"""The entries of a note."""


class NumberedTable(nodes.General, nodes.Element):
    """A table that is HTML: the book numbers and links it."""


def connect(app: Sphinx) -> None:
    """Add this to a build."""
    nothing = (lambda *_: None,) * 2
    app.add_enumerable_node(NumberedTable, "table", lambda node: node["caption"],
                            html=(_begin, _end), latex=nothing, text=nothing)
    app.connect("doctree-read", furnish)


def furnish(app: Sphinx, doctree: nodes.document) -> None:
    """Put the links beside what a page shows, if it is an executed chapter."""
    page = app.env.docname
    source = Path(app.env.doc2path(page))
    notebook = load_notebook(source) if source.suffix == ".ipynb" else None
    if notebook is None or "parameters" not in notebook.metadata.get("rmutils", {}):
        return
    cells = {cell["cell_index"]: list(cell.findall(_is_output)) for cell in doctree.findall(
        lambda node: isinstance(node, nodes.container) and "cell_index" in node)}
    shown = {(cell, place): output for cell, outputs in cells.items()
             for place, output in enumerate(outputs)}
    for item in items(notebook, source.stem):
        if output := shown.get((item.cell, item.output)):  # else the page does not show it
            found = [note for note in notes(notebook, item) if note in shown]
            _furnish(app, doctree, output, item, _together([_html(shown[note]) for note in found])
                     or how_made(_record(notebook, source.stem, item)).data)
            for note in found:
                _remove(shown.pop(note))
    for row in rows_of_notes(notebook):  # of what is told in a sentence
        first, *others = [shown[note] for note in row if note in shown] or [None]
        if others:
            note = _together([_html(first), *map(_html, others)])
            for raw in list(first.findall(nodes.raw)):
                raw.replace_self(nodes.raw("", note, format="html"))
            for other in others:
                _remove(other)


def _furnish(app: Sphinx, doctree: nodes.document, output: nodes.Element, item: Item,
             note: str) -> None:
    block = output.parent if isinstance(output.parent, nodes.figure) else output
    if block is output:  # without a number yet
        anchor = item.anchor + "-shown" * (item.anchor in doctree.ids)  # a heading may be called so
        block = _numbered(item, anchor)
        output.replace_self(block)
        block.insert(0, output)
        doctree.note_explicit_target(block, block)
        app.env.get_domain("std").note_hyperlink_target(
            item.label, app.env.docname, anchor, item.caption)
    if app.builder.format == "html":
        files = " ".join(f'<a href="{html.escape(url)}" download="{html.escape(saved)}">{text}</a>'
                         for url, saved, text in _files(app, output, item))
        beside = f'<div class="rm-beside"><div>{note}</div><p>{files}</p></div>'
        place = block.parent.index(block) + 1
        block.parent.insert(place, nodes.raw("", beside, format="html"))


def _html(output: nodes.Element) -> str:
    return "".join(raw.astext() for raw in output.findall(nodes.raw))


def _together(found: list[str]) -> str:
    """One note of many: what is made of twenty results does not fill the page with their notes."""
    if len(found) < 2:
        return "".join(found)
    lists = "".join(LIST.search(note)[0] for note in found)
    return ('<details class="rm-made"><summary>How this was made, from '
            f"{len(found)} results</summary>{lists}</details>")


def _remove(output: nodes.Element) -> None:
    """Take an output from the page, with its cell if that has nothing else."""
    cell = output.parent.parent
    output.parent.remove(output)
    if not any(part.children for part in cell):
        cell.parent.remove(cell)


def _numbered(item: Item, anchor: str) -> nodes.Element:
    named = {"ids": [anchor], "names": [anchor]}
    if item.kind == "figure":
        return nodes.figure("", nodes.caption(item.caption, item.caption), **named)
    return NumberedTable(caption=item.caption, **named)


def _files(app: Sphinx, output: nodes.Element, item: Item) -> Iterator[tuple[str, str, str]]:
    """Address, name to save under, and what to call it."""
    page = app.env.docname
    up, chapter = "../" * page.count("/"), page.rpartition("/")[2]
    name = item.label.removeprefix(f"{chapter}-")
    if image := next(output.findall(nodes.image), None):
        file = app.env.images[image["uri"]][1]
        kind = Path(file).suffix[1:]
        yield f"{up}_images/{file}", f"{name}.{kind}", f"image ({kind.upper()})"
    if item.csv:
        data = Path(DATA, page, f"{name}.csv")
        _write(Path(app.outdir) / data, item.csv)
        yield f"{up}{data.as_posix()}", f"{chapter}-{name}.csv", "data (CSV)"
    yield f"{up}_sources/{page}.ipynb", f"{chapter}.ipynb", "notebook"


def _write(file: Path, text: str) -> None:
    """With the mark by which spreadsheets know UTF-8."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8-sig")


def _record(notebook: NotebookNode, chapter: str, item: Item) -> dict[str, str]:
    """How the whole chapter was made, for what has no note of its own."""
    run = notebook.metadata["rmutils"]
    values = run["parameters"]
    given = [word for name in run.get("changed", ())
             for word in ("-p", name, as_word(values[name]))]
    return {
        "notebook": f"{chapter}.ipynb, code cell {item.code_cell}",
        "reads": ", ".join(run.get("data", ())) or "no files",
        "parameters": ", ".join(f"{name} = {value}" for name, value in values.items()),
        "command": shlex.join(["rmutils", "run", chapter, *given]),
        "time": f"{run['seconds']:.0f} s for the whole chapter",
        "made": run["started"],
    }


def _is_output(node: nodes.Node) -> bool:
    return isinstance(node, nodes.container) and node.get("nb_element") == "mime_bundle"


def _begin(page: HTML5Translator, node: NumberedTable) -> None:
    """The number goes into the table's own caption."""
    number = page.builder.fignumbers.get("table", {}).get(node["ids"][0], ())
    shown = page.config.numfig_format["table"] % ".".join(map(str, number))
    caption = '<p class="rm-caption">'
    for raw in node.findall(nodes.raw):
        text = raw.astext().replace(
            caption, f'{caption}<span class="caption-number">{shown} </span>', 1)
        raw.replace_self(nodes.raw("", text, format="html"))
    page.body.append(page.starttag(node, "div"))


def _end(page: HTML5Translator, node: NumberedTable) -> None:
    page.body.append("</div>\n")
