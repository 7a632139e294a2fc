"""What every notebook of the book keeps to."""

import ast
import copy
import json
import re
import runpy

import nbformat
import pytest

from rmutils.book.site.dependencies import chapters
from rmutils.book.site.parameters import read_parameters
from rmutils.core import paths

NOTEBOOKS = sorted(paths.NOTEBOOKS.glob("*.ipynb"))
LONGEST_FUNCTION = 8
"""Lines. What is longer belongs into the package, where it is tested."""


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture
def cells(path):
    return nbformat.read(path, as_version=4).cells


def test_first_code_cell_declares_every_parameter_with_a_comment(path, cells):
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert ["parameters" in cell.metadata.get("tags", []) for cell in code] == \
        [True] + [False] * (len(code) - 1)
    parameters = read_parameters(path)
    assert parameters
    for parameter in parameters.values():
        assert len(parameter.comment.split()) >= 2, f"{parameter.name} is not explained"


def test_code_folds_away_except_parameters(cells):
    """Readers see questions, figures and answers first; the code is one click away, but for a few
    lines that stand below the equation that they compute."""
    for cell in (cell for cell in cells if cell.cell_type == "code"):
        assert len({"parameters", "hide-input", "remove-input", "equation"}
                   & {*cell.metadata.tags}) == 1


REMEMBER = re.compile(r"^:::\{admonition\} Remember\n:class: rm-remember\n\n((?:- .+\n)+):::$",
                      re.MULTILINE)


def test_chapter_says_what_to_remember(path, cells):
    """After its results, and before exercises and what comes next; the front page is no chapter."""
    if path.stem == "essay":
        return
    text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    (said,) = REMEMBER.finditer(text)
    assert 2 <= said[1].count("\n") <= 4
    assert not re.search("^## Re(sult|ad it critically)", text[said.end():], re.MULTILINE)
    assert "\n## Exercises\n" not in text[:said.start()]


def test_notebook_is_stripped(cells):
    for cell in cells:
        assert not cell.get("outputs") and cell.get("execution_count") is None
        assert "papermill" not in cell.metadata


def test_notebook_is_as_jupyter_saves_it(path):
    """Else opening and saving one changes every line."""
    text = path.read_text(encoding="utf-8")
    assert text == nbformat.writes(nbformat.read(path, as_version=4)) + "\n"


def test_notebook_defines_no_algorithm(cells):
    for cell in (cell for cell in cells if cell.cell_type == "code"):
        for node in ast.walk(ast.parse(cell.source)):
            assert not isinstance(node, ast.ClassDef)
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno < LONGEST_FUNCTION, node.name


def test_what_a_cell_reports_is_shown(cells):
    """Jupyter shows the value of a cell's last expression, and of no other."""
    for cell in (cell for cell in cells if cell.cell_type == "code"):
        tree = ast.parse(cell.source)
        lost = [ast.unparse(node) for node in ast.walk(tree)
                if isinstance(node, ast.Expr) and node is not tree.body[-1]
                and ast.unparse(node).startswith("report.")]
        assert not lost, cell.id


def test_every_figure_has_a_number_a_caption_and_a_description(cells):
    for cell in cells:
        shown = cell.metadata.get("mystnb", {})
        if "figure" in shown:
            assert shown["figure"]["name"].startswith("fig-") and shown["figure"]["caption"]
        if "figure" in shown or "image" in shown:
            assert len(shown["image"]["alt"].split()) >= 5


def test_declared_data_exists_and_profiles_are_valid():
    for profile in ("embedded", "smoke"):
        assert [c.name for c in chapters(paths.ROOT, profile)] == [p.stem for p in NOTEBOOKS]


VERDICT = re.compile(
    r"\bnot measurabl|\bno (setting|strategy|measurable|visible|noticeable)\b|\bare not seen\b"
    r"|\bis not seen\b|\bneither (\w+ )?(helps?|gains?|differs?|falls?|rises?|is|does|strategy)\b"
    r"|\bthe same heads (at|in|for|lead|are|do|under)\b", re.IGNORECASE)
"""Words that say what was found. A page that says so by itself goes on saying it when the numbers
have changed: such sentences take findings (`say`)."""
ASKED_OR_QUOTED = re.compile(r'"[^"]*"|[^.!?\n]*\?|^ +- [abc]\) .*$', re.MULTILINE)
"""The paper's words, questions, and the options of a quiz."""


def verdicts_by_hand(text: str) -> list[str]:
    return [hit[0] for hit in VERDICT.finditer(ASKED_OR_QUOTED.sub("", text))]


def test_results_are_computed_not_written():
    texts = {path.name: "\n\n".join(
        cell.source for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "markdown") for path in NOTEBOOKS}
    texts |= {path.name: path.read_text(encoding="utf-8") for path in paths.BOOK.glob("*.md")}
    found = {name: verdicts_by_hand(text) for name, text in texts.items()}
    assert not {name: hits for name, hits in found.items() if hits}


SAVE = runpy.run_path(str(paths.ROOT / ".ci" / "jupyter_config.py"))["without_outputs"]


def test_notebook_that_was_run_in_the_browser_is_saved_as_it_was():
    for path in paths.NOTEBOOKS.glob("*.ipynb"):
        before = json.loads(path.read_text(encoding="utf-8"))
        shown = copy.deepcopy(before)
        shown["metadata"]["kernelspec"]["display_name"] = "Python 3 (ipykernel)"
        shown["metadata"]["language_info"] = {"name": "python", "version": "3.12.1"}
        for number, cell in enumerate(shown["cells"]):
            cell["metadata"]["trusted"] = True
            if cell["cell_type"] == "code":
                cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "seen"}]
                cell["execution_count"] = number
                cell["metadata"]["execution"] = {"iopub.status.busy": "2026-01-01T00:00:00"}
        SAVE({"type": "notebook", "content": shown}, path=f"notebooks/{path.name}")
        assert shown == before, path.name


def test_what_is_written_by_hand_is_kept_and_other_files_are_left_alone():
    cell = {"cell_type": "code", "source": "tau = 0.05", "outputs": [], "execution_count": None,
            "metadata": {"tags": ["parameters"]}}
    notebook = {"nbformat": 4, "metadata": {"rmutils": {"data": []}}, "cells": [cell]}
    kept = copy.deepcopy(cell), {"data": []}
    SAVE({"type": "notebook", "content": notebook}, path="notebooks/a.ipynb")
    assert (notebook["cells"][0], notebook["metadata"]["rmutils"]) == kept
    for other, path in (({"type": "file", "content": "outputs"}, "notebooks/a.txt"),
                        ({"type": "notebook", "content": {"nbformat": 4, "cells": [
                            cell | {"outputs": ["seen"]}]}}, "class/release/a/a.ipynb")):
        before = copy.deepcopy(other)
        SAVE(other, path=path)
        assert other == before
