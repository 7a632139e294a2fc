"""The book's Sphinx extension: additions to the pages when they are built.

What was found stands below a chapter's title, and beside each figure and table its picture, its
data, its notebook and how it was made (`frame`). The directive `generated` writes lists and records
that nobody types. Each page says the book's version (`versions`). The book's address, its search
and links to the playground are the business of `links_and_search`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rmutils.core.paths import DATA, ROOT

if TYPE_CHECKING:
    from sphinx.application import Sphinx


CITATION, CHANGELOG = ROOT / "CITATION.cff", ROOT / "CHANGELOG.md"
COVERAGE, FAULTS = DATA / "coverage.yml", DATA / "faults.json"
STANDARDS = DATA / "standards.yml"
MUTATION = DATA / "mutation.json"


def inputs() -> list[Path]:
    """The files of the project, outside of its book, that generated parts are made from."""
    from rmutils.book.site.pages.standards import evidence

    paper = sorted(p for p in (DATA / "paper").iterdir() if p.is_file())
    return [CITATION, CHANGELOG, COVERAGE, FAULTS, *filter(Path.is_file, [MUTATION]), STANDARDS,
            *paper, *evidence()]


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx calls this."""
    from rmutils.book.site.pages import frame, generated, links_and_search, versions

    for part in (links_and_search, frame, generated, versions):
        part.connect(app)
    app.connect("env-before-read-docs", _declare)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _declare(app: Sphinx, *_: object) -> None:
    """Say for some extensions that several processes may read pages. They copy files
    when all is done, number sections when all is read, or have to do with LaTeX only."""
    for name in ("sphinx-mathjax-offline", "sphinx_multitoc_numbering", "sphinx_jupyterbook_latex"):
        if extension := app.extensions.get(name):
            extension.parallel_read_safe = True
