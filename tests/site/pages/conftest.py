"""A book of one chapter and one page, as a build leaves it, and its pages."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib.figure import Figure
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from rmutils.book.figures.report import how_made, say, table
from rmutils.book.figures.style import FOR_A_PHONE, carried, to_svg
from rmutils.book.site.pages.address import VARIABLE
from tests.site.conftest import once

PARAMETERS = '''tau: float = 0.1  # heads at or above | this score count
name: str | None = None  # of *what*'''
EVIL = "<script>alert(1)</script> & `code` [x](y) $x$"
VALUES = {"n": [1 / 3, 2 / 3], "text": ["=1+1", EVIL]}
CONTENTS = """\
format: jb-book
root: index
parts:
  - caption: All
    chapters:
      - file: chapters/05_one
      - file: lists
"""
CONFIG = {
    "extensions": ["sphinx_external_toc", "myst_nb", "rmutils.book.site.pages"],
    "external_toc_path": "_toc.yml", "nb_execution_mode": "off", "numfig": True,
    "numfig_format": {"table": "Tab. %s"}, "html_title": "A book",
    "exclude_patterns": ["**/.partial"], "nitpicky": True, "language": "en",
    "html_sourcelink_suffix": "",
}


def shown(*values):
    """The outputs of a cell that shows these."""
    formatter = DisplayFormatter()
    formatter.formatters["image/svg+xml"].for_type(Figure, to_svg)
    formatter.mimebundle_formatter.for_type(Figure, carried)
    return [new_output("display_data", data, metadata=metadata)
            for data, metadata in map(formatter.format, values)]


def figure() -> Figure:
    drawn = Figure(figsize=(2, 1))
    drawn.subplots().plot([0, 1 / 3], [1, 2], label="+line")
    return drawn


def code(name: str, *values, **metadata):
    return new_code_cell("...", id=name, outputs=shown(*values), metadata=metadata)


@pytest.fixture(scope="session")
def notebook():
    """A figure with a name, a table with a note of its own, and two figures without a name."""
    named = {"figure": {"name": "fig-line", "caption": "A *line*."}, "image": {"alt": "A line."}}
    note = how_made({"result": "detect-0123"})
    line = figure()
    FOR_A_PHONE[line] = figure()
    cells = [
        new_markdown_cell("(one)=\n# One `chapter`\n\n"
                          "{numref}`fig-line` and {numref}`05_one-tab-1`"),
        new_code_cell(PARAMETERS, id="own", metadata={"tags": ["parameters"]}),
        code("a", line, mystnb=named),
        new_markdown_cell("Text."),
        code("b", table(pd.DataFrame(VALUES), EVIL)),
        code("said", say("So **many**."), tags=["remove-input"]),
        code("c", note, note, tags=["remove-input"]),
        new_markdown_cell("## Tab 1"),
        code("d", figure(), figure(), note, mystnb={"image": {"alt": "Two more lines."}}),
        new_markdown_cell("Told in words."),
        code("told", say("Measured."), note),
        code("more", note),
    ]
    run = {"parameters": {"tau": 0.2, "name": None}, "changed": ["tau"], "seconds": 12.3,
           "started": "2026-01-01T00:00:00+00:00", "data": ["data/paper/*.csv"]}
    return new_notebook(cells=cells, metadata={
        "rmutils": run, "language_info": {"name": "python", "pygments_lexer": "ipython3"}})


@pytest.fixture(scope="session")
def book(notebook, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("book")
    (folder / "chapters").mkdir()
    (folder / "_toc.yml").write_text(CONTENTS)
    nbformat.write(notebook, folder / "chapters" / "05_one.ipynb")
    (folder / "index.md").write_text("# Start\n")
    (folder / "lists.md").write_text(
        f"# Lists\n\n{'Words before. ' * 20}\n\n"
        "```{generated} figures-and-tables\n```\n\n```{generated} parameters\n```\n")
    return folder


ADDRESS = "https://example.org/book"
BUILDING = f"""
import os, sys
from sphinx.cmd.build import main
settings, book, plain, addressed = sys.argv[1:]
failed = main(["-qWc", settings, book, plain])
os.environ[{VARIABLE!r}] = {ADDRESS!r}
sys.exit(failed or main(["-qWc", settings, book, addressed]))
"""


def build(book: Path, folder: Path) -> None:
    """Build the book's pages twice, the second time with an address, in a process of their own, as
    sphinx-sitemap forks, which must not happen beside the threads of other tests; any warning is an
    error."""
    settings = folder / "settings"
    settings.mkdir(parents=True)
    (settings / "conf.py").write_text("".join(f"{k} = {v!r}\n" for k, v in CONFIG.items()))
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    done = subprocess.run([sys.executable, "-c", BUILDING, settings, book, folder / "html",
                           folder / "addressed"], capture_output=True, text=True, env=environment)
    assert not done.returncode, done.stderr


@pytest.fixture(scope="session")
def pages(book, tmp_path_factory) -> Path:
    """Folder of the pages, built without an address; beside it, `addressed` has those with one."""
    return once(tmp_path_factory, "pages", lambda folder: build(book, folder)) / "html"
