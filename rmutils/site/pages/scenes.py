"""The role `scene`: a link that opens the playground with a scene set.

`Mask one head <model=smollm2-135m&scene=0&change=top&k=1>`, say: its text, and in brackets the part
of the playground's address that `book/playground/address.js` reads.
"""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import ReferenceRole

PAGE = "playground.html"


class Scene(ReferenceRole):
    """The link, from whatever folder the page lies in."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        up = "../" * self.env.docname.count("/")
        return [nodes.reference(
            self.rawtext, self.title, refuri=f"{up}{PAGE}#{self.target}", internal=True)], []


def connect(app: Sphinx) -> None:
    """Register the role."""
    app.add_role("scene", Scene())
