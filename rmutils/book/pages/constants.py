"""The reference shows short values of constants; a long one would fill pages, and a path of this
machine tells a reader nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.addnodes import desc_annotation

from rmutils.paths import ROOT

if TYPE_CHECKING:
    from sphinx.application import Sphinx

LONGEST = 160
"""Letters of a value that is shown, two lines or so."""


def connect(app: Sphinx) -> None:
    """Add this to a build."""
    app.connect("doctree-read", shorten)


def shorten(app: Sphinx, doctree: nodes.document) -> None:
    """Leave out long values, and paths; the link to the source leads to them."""
    for value in doctree.findall(desc_annotation):
        text = value.astext()
        if text.lstrip().startswith("=") and (len(text) > LONGEST or str(ROOT) in text):
            value.children = [nodes.Text(" = …")]
