"""What every notebook of the book keeps to."""

import ast
import copy
import json
import re
import runpy
from collections.abc import Iterator
from functools import cache

import nbformat

from rmutils.book.site.dependencies import chapters
from rmutils.book.site.parameters import read_parameters
from rmutils.core import paths

NOTEBOOKS = sorted(paths.NOTEBOOKS.glob("*.ipynb"))
LONGEST_FUNCTION = 8
"""Lines. What is longer belongs into the package, where it is tested."""
REMEMBER = re.compile(r"^:::\{admonition\} Remember\n:class: rm-remember\n\n((?:- .+\n)+):::$",
                      re.MULTILINE)
FOLDS = {"parameters", "hide-input", "remove-input", "equation"}
"""The code is one click away, but for parameters and a few lines below the equation that they
compute."""


@cache
def read(path):
    return nbformat.read(path, as_version=4)


def markdown(path) -> str:
    return "\n\n".join(c.source for c in read(path).cells if c.cell_type == "markdown")


def wrong_with(path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    if text != nbformat.writes(read(path)) + "\n":  # opening and saving it would change every line
        yield "not as Jupyter saves it"
    code = [cell for cell in read(path).cells if cell.cell_type == "code"]
    if [n for n, cell in enumerate(code) if "parameters" in cell.metadata.tags] != [0]:
        yield "the first cell alone declares parameters"
    yield from (f"{one.name} is not explained" for one in read_parameters(path).values()
                if len(one.comment.split()) < 2)
    for cell in code:
        if len(FOLDS & {*cell.metadata.tags}) != 1:
            yield f"{cell.id} has to have one of {FOLDS}"
        if cell.get("outputs") or cell.get("execution_count") is not None:
            yield f"{cell.id} has outputs"
        yield from in_code(cell.id, ast.parse(cell.source))
    for cell in read(path).cells:
        shown = cell.metadata.get("mystnb", {})
        figure = shown.get("figure", {"name": "fig-", "caption": "none"})
        if not (figure["name"].startswith("fig-") and figure["caption"]):
            yield f"{cell.id} has no name or caption"
        if shown.keys() & {"figure", "image"} and len(shown["image"]["alt"].split()) < 5:
            yield f"{cell.id} has no description"
        if "papermill" in cell.metadata:
            yield f"{cell.id} was run"


def in_code(name: str, tree: ast.Module) -> Iterator[str]:
    """Algorithms belong into the package, where they are tested; and Jupyter shows the value of a
    cell's last expression, and of no other."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) or isinstance(node, ast.FunctionDef) and (
                node.end_lineno - node.lineno >= LONGEST_FUNCTION):
            yield f"{name} defines {node.name}"
        if isinstance(node, ast.Expr) and node is not tree.body[-1] and (
                ast.unparse(node).startswith("report.")):
            yield f"{name} does not show what it reports: {ast.unparse(node)}"


def test_every_notebook_keeps_the_rules():
    found = {path.stem: [*wrong_with(path)] for path in NOTEBOOKS}
    assert len(found) > 20 and not {name: told for name, told in found.items() if told}


def test_chapter_says_what_to_remember():
    """After its results, and before exercises and what comes next; the front page is no chapter."""
    for path in NOTEBOOKS:
        if path.stem == "essay":
            continue
        text = markdown(path)
        (said,) = REMEMBER.finditer(text)
        assert 2 <= said[1].count("\n") <= 4, path.stem
        assert not re.search("^## Re(sult|ad it critically)", text[said.end():], re.MULTILINE)
        assert "\n## Exercises\n" not in text[:said.start()], path.stem


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
    texts = {path.name: markdown(path) for path in NOTEBOOKS}
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
