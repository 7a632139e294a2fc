"""The frame of a chapter's page: what was found stands below the title, parameters are folded.

In a notebook both come where they are run. A reader of the page wants the finding first, and its
parameters only if they are to be changed.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx

FOUND = '<section class="rm-found"'
"""What the box begins with (`rmutils.figures.report.what_we_found`)."""


def connect(app: Sphinx) -> None:
    """Add this to a build."""
    app.connect("doctree-read", arrange)


def arrange(app: Sphinx, doctree: nodes.document) -> None:
    """Move the box to the top of the page, and fold the cell of parameters."""
    cells = list(doctree.findall(lambda node: isinstance(node, nodes.container)
                                 and "cell_index" in node))
    for cell in cells:
        if any(raw.astext().startswith(FOUND) for raw in cell.findall(nodes.raw)):
            _lift(doctree, cell)
        elif "tag_parameters" in cell["classes"]:
            _fold(cell, app.env.docname.rpartition("/")[2])


def _lift(doctree: nodes.document, cell: nodes.Element) -> None:
    top = next(doctree.findall(nodes.section))
    cell.parent.remove(cell)
    top.insert(top.first_child_matching_class(nodes.title) + 1, cell)


def _fold(cell: nodes.Element, chapter: str) -> None:
    command = html.escape(f"rmutils run {chapter} -p NAME VALUE")
    begin = ('<details class="rm-parameters"><summary>Parameters of this chapter, to be changed '
             f"with <code>{command}</code></summary>")
    place = cell.parent.index(cell)
    cell.parent.insert(place + 1, nodes.raw("", "</details>", format="html"))
    cell.parent.insert(place, nodes.raw("", begin, format="html"))
