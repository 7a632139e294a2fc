"""The frame of a chapter's page: the box below the title, aims and parameters folded."""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from nbformat import NotebookNode
from sphinx.util.logging import getLogger

from rmutils.book.figures.report import fold, how_made
from rmutils.book.site.pages.items import MADE, Item, items, notes, rows_of_notes
from rmutils.book.site.parameters import as_word, load_notebook

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment
    from sphinx.writers.html5 import HTML5Translator

LOG = getLogger(__name__)
FOUND = '<section class="rm-found"'
"""What the box begins with (`rmutils.book.figures.report.what_we_found`)."""
AIMS = "rm-aims"
OPEN_TABLES = 5  # so many tables of a chapter are open, unless the notebook folds them itself
TABLE, FOLDED, BESIDE = '<div class="rm-scroll"', "rm-fold", '<div class="rm-beside"'
LACKING = "This section lacks its data"  # how a notebook says that there is nothing to show


class NumberedTable(nodes.General, nodes.Element):
    """A table that is HTML: the book numbers and links it."""


def connect(app: Sphinx) -> None:
    """Add this to a build."""
    nothing = (lambda *_: None,) * 2
    app.add_enumerable_node(NumberedTable, "table", lambda node: node["caption"],
                            html=(_begin, _end), latex=nothing, text=nothing)
    app.connect("doctree-read", arrange, priority=400)  # before the page's contents are listed
    app.connect("doctree-read", furnish)
    app.connect("env-get-updated", count_by_page, priority=900)  # after Sphinx has numbered them
    app.connect("doctree-resolved", lead_across)


def count_by_page(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Begin with 1 on each page without a number of its own; Sphinx counts through the book."""
    for kinds in env.toc_fignumbers.values():
        for numbers in kinds.values():
            if all(len(number) == 1 for number in numbers.values()):
                numbers.update({name: (i,) for i, name in enumerate(numbers, 1)})
    return []


def arrange(app: Sphinx, doctree: nodes.document) -> None:
    """Move the box to the top of the page, and fold the aims and the cell of parameters."""
    for aims in doctree.findall(lambda node: isinstance(node, nodes.admonition)
                                 and AIMS in node["classes"]):
        aims["classes"].append("dropdown")  # else the first figure is below the fold
    for section in list(doctree.findall(nodes.section)):
        if not any(section.findall(nodes.section, include_self=False)) and any(
                output.astext().startswith(LACKING) for output in section.findall(_is_cell_output)):
            section.parent.remove(section)
    cells = list(doctree.findall(lambda node: isinstance(node, nodes.container)
                                 and "cell_index" in node))
    for cell in cells:
        box = next((raw for raw in cell.findall(nodes.raw) if raw.astext().startswith(FOUND)), None)
        if box is not None:
            if not app.env.docname.startswith("gallery/"):  # there it stands beside the chapter's
                _lift(doctree, box)
        elif "tag_parameters" in cell["classes"]:
            _fold(cell, app.env.docname.rpartition("/")[2])
    tables = [raw for raw in doctree.findall(nodes.raw) if raw.astext().startswith(TABLE)
              and FOLDED not in raw.astext()]
    for raw in tables[OPEN_TABLES:]:
        raw.replace_self(nodes.raw("", _folded(raw.astext()), format="html"))


def _is_cell_output(node: nodes.Node) -> bool:
    """Return whether a node holds what a cell showed: its source may hold the same words."""
    return isinstance(node, nodes.container) and "cell_output" in node["classes"]


def _folded(table: str) -> str:
    rows = table.count("<tr") - table.count('scope="rowgroup"') - 1
    return re.sub("<table.*</table>", lambda found: fold(found[0], rows), table, flags=re.DOTALL)


def _lift(doctree: nodes.document, box: nodes.raw) -> None:
    """Move the box alone, below what the page opens with: its code stays where it is run."""
    top = next(doctree.findall(nodes.section))
    opening = list(_opening(top, box))
    box.parent.remove(box)
    for part in (box, *reversed(opening)):
        if part in top:
            top.remove(part)
        top.insert(top.first_child_matching_class(nodes.title) + 1, part)


def _opening(top: nodes.section, box: nodes.raw) -> Iterator[nodes.Node]:
    """Paragraphs, code and outputs that stand before the box and before any heading."""
    for part in top.children:
        if isinstance(part, nodes.section) or box in part.findall(nodes.raw):
            return
        if isinstance(part, nodes.paragraph | nodes.literal_block) or any(
                part.findall(_is_cell_output)):
            yield part


def _fold(cell: nodes.Element, chapter: str) -> None:
    command = html.escape(f"rmutils run {chapter} -p NAME VALUE")
    begin = ('<details class="rm-parameters"><summary>Parameters of this chapter, to be changed '
             f"with <code>{command}</code></summary>")
    place = cell.parent.index(cell)
    cell.parent.insert(place + 1, nodes.raw("", "</details>", format="html"))
    cell.parent.insert(place, nodes.raw("", begin, format="html"))


DATA = "_downloads"  # folder of the data, beside the pages
LIST = re.compile(r"<dl>.*</dl>", re.DOTALL)  # the entries of a note


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
    if app.builder.format == "html":
        for outputs in list(doctree.findall(_is_cell_output)):
            gather(outputs)


def gather(outputs: nodes.Element) -> None:
    """Put a folded table, or several that follow each other, and the notes beside into one fold."""
    rows: list[list[nodes.Node]] = [[]]
    for part in outputs.children:
        text = "".join(raw.astext() for raw in part.findall(nodes.raw))
        if text.startswith(MADE) or BESIDE in text or FOLDED in text:
            rows[-1].append(part)
        elif rows[-1]:
            rows.append([])
    for row in rows:
        if row and not isinstance(row[0], NumberedTable) and BESIDE in row[0].astext():
            row = row[1:]  # the links of the figure before
        tables = [part for part in row if isinstance(part, NumberedTable)]
        if not tables:
            continue
        for part in tables:
            for raw in list(part.findall(nodes.raw)):
                raw.replace_self(nodes.raw("", raw.astext().replace(
                    f'<details class="{FOLDED}">', f'<details class="{FOLDED}" open>'),
                    format=raw["format"]))
        line = "The numbers" if len(tables) < 2 else f"The numbers, {len(tables)} tables"
        outputs.insert(outputs.index(row[-1]) + 1, nodes.raw("", "</details>", format="html"))
        outputs.insert(outputs.index(row[0]), nodes.raw(
            "", f'<details class="rm-numbers"><summary>{line}</summary>', format="html"))


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
        beside = f'{BESIDE}><div>{note}</div><p>{files}</p></div>'
        place = block.parent.index(block) + 1
        block.parent.insert(place, nodes.raw("", beside, format="html"))
        if item.phone:
            _offer(app, output, item)


def _offer(app: Sphinx, output: nodes.Element, item: Item) -> None:
    """Have a phone show the picture that is drawn for it."""
    page, image = app.env.docname, next(output.findall(nodes.image))
    file = Path(DATA, page, f"{item.anchor}-phone.svg")
    _write(Path(app.outdir) / file, item.phone, encoding="utf-8")
    source = html.escape("../" * page.count("/") + file.as_posix())
    place = image.parent.index(image)
    image.parent.insert(place + 1, nodes.raw("", "</picture>", format="html"))
    image.parent.insert(place, nodes.raw(
        "", f'<picture><source media="screen and (max-width: 600px)" srcset="{source}">',
        format="html"))


def lead_across(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Lead the numbers in what a cell says to their places, which may be on other pages."""
    places = app.env.get_domain("std").anonlabels

    def elsewhere(label: str) -> str:
        if label in doctree.ids or label not in places:
            return f"#{label}"
        other, anchor = places[label][:2]
        return f"{app.builder.get_relative_uri(page, other)}#{anchor}"

    for cell in doctree.findall(_is_cell_output):
        for link in cell.findall(nodes.reference):
            if (uri := link.get("refuri", "")).startswith("#"):
                link["refuri"] = elsewhere(uri[1:])
                if link["refuri"] == uri and uri[1:] not in doctree.ids:
                    LOG.warning("%s: a number leads to %r, which is nowhere", page, uri[1:])
    for raw in [*doctree.findall(nodes.raw)]:
        if 'href="#' in raw.astext():
            text = re.sub(r'(?<=href=")#([\w-]+)(?=")', lambda found: elsewhere(found[1]),
                          raw.astext())
            raw.replace_self(nodes.raw("", text, format=raw["format"]))


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


def _write(file: Path, text: str, encoding: str = "utf-8-sig") -> None:
    """By default with the mark by which spreadsheets know UTF-8."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding=encoding)


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
