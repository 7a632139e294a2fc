"""The directive `generated`: parts of pages that are computed when the book is built.

A page of the book says what stands where; what is listed comes from the executed chapters, from the
audit and from files of the project.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from rmutils.book.pages import faults, lists, records
from rmutils.errors import UserError

if TYPE_CHECKING:
    from sphinx.application import Sphinx

WRITERS: dict[str, Callable[..., str]] = {
    "figures-and-tables": lists.figures_and_tables,
    "parameters": lists.parameters,
    "said": lists.said,
    "errata": records.errata,
    "bibtex": records.bibtex,
    "citation": records.citation,
    "changes": records.changes,
    "faults": faults.faults,
    "faults-in-all": faults.in_all,
}
"""Each is given the book's folder and the words after its name, and returns Markdown."""


class Generated(SphinxDirective):
    """`{generated} NAME WORDS ...`: what the writer of that name makes of the words."""

    required_arguments = 1
    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Put the text where the directive stands; with headings it cannot be handed back."""
        name, *rest = " ".join(self.arguments).split()
        if name not in WRITERS:
            raise self.error(f"nothing is generated as {name!r}; there is {', '.join(WRITERS)}")
        try:
            text = WRITERS[name](Path(self.env.srcdir), *rest)
        except UserError as wrong:
            raise self.error(str(wrong)) from wrong
        self.state.nested_parse(StringList(text.splitlines(), name), 0, self.state_machine.node,
                                match_titles=True)
        return []


def connect(app: Sphinx) -> None:
    """Add this to a build."""
    app.add_directive("generated", Generated)
