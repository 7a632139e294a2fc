"""The book's Sphinx extension: additions to the pages when they are built."""

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
    from rmutils.book.site import percent
    from rmutils.book.site.pages import address, frame, generated, versions

    for part in (address, frame, generated, percent, versions):
        part.connect(app)
    app.connect("env-before-read-docs", _declare)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _declare(app: Sphinx, *_: object) -> None:
    """Say for some extensions that several processes may read pages."""
    for name in ("sphinx-mathjax-offline", "sphinx_multitoc_numbering", "sphinx_jupyterbook_latex"):
        if extension := app.extensions.get(name):
            extension.parallel_read_safe = True
