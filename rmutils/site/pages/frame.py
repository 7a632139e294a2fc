"""The frame of a chapter's page: what was found stands below the title, parameters are folded.

In a notebook both come where they are run. A reader of the page wants the finding first, and its
parameters only if they are to be changed. A section whose data are not stored is left out, and of
many tables the later ones are folded.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from docutils import nodes

from rmutils.figures.report import fold

if TYPE_CHECKING:
    from sphinx.application import Sphinx

FOUND = '<section class="rm-found"'
"""What the box begins with (`rmutils.figures.report.what_we_found`)."""
OPEN_TABLES = 5
"""So many tables of a chapter are open, unless the notebook folds them itself."""
TABLE, FOLDED = '<div class="rm-scroll"', "rm-fold"
LACKING = "This section lacks its data"
"""How a notebook says that there is nothing to show."""


def connect(app: Sphinx) -> None:
    """Add this to a build."""
    app.connect("doctree-read", arrange, priority=400)  # before the page's contents are listed


def arrange(app: Sphinx, doctree: nodes.document) -> None:
    """Move the box to the top of the page, and fold the cell of parameters."""
    for section in list(doctree.findall(nodes.section)):
        if not any(section.findall(nodes.section, include_self=False)) and any(
                output.astext().startswith(LACKING) for output in section.findall(_is_output)):
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


def _is_output(node: nodes.Node) -> bool:
    """Return whether a node holds what a cell showed: its source may hold the same words."""
    return isinstance(node, nodes.container) and "cell_output" in node["classes"]


def _folded(table: str) -> str:
    rows = table.count("<tr") - table.count('scope="rowgroup"') - 1
    return re.sub("<table.*</table>", lambda found: fold(found[0], rows), table, flags=re.DOTALL)


def _lift(doctree: nodes.document, box: nodes.raw) -> None:
    """Move the box alone: its code stays where it is run."""
    top = next(doctree.findall(nodes.section))
    box.parent.remove(box)
    top.insert(top.first_child_matching_class(nodes.title) + 1, box)


def _fold(cell: nodes.Element, chapter: str) -> None:
    command = html.escape(f"rmutils run {chapter} -p NAME VALUE")
    begin = ('<details class="rm-parameters"><summary>Parameters of this chapter, to be changed '
             f"with <code>{command}</code></summary>")
    place = cell.parent.index(cell)
    cell.parent.insert(place + 1, nodes.raw("", "</details>", format="html"))
    cell.parent.insert(place, nodes.raw("", begin, format="html"))
