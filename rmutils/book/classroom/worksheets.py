"""Worksheets: the exercises of a chapter as two notebooks in nbgrader's format.

A worksheet stands on its own: it needs the package, and neither the chapter's results nor its
minutes, so that the answers of a class are graded in seconds. The teacher's has solutions and
hidden checks between nbgrader's marks; the student's is what `nbgrader generate_assignment` makes
of it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from rmutils.book.classroom.exercises import BLANK, Exercise, read_exercises
from rmutils.parameters import load_notebook

SCHEMA = 3
"""Version of nbgrader's metadata, that of nbgrader 0.6 to 0.9."""
SOURCE, RELEASE = "source", "release"
"""Folders of a course of nbgrader: the teacher's worksheets and the students'."""
WANTED = "    # YOUR CODE HERE\n    raise NotImplementedError()"
ANSWER = "YOUR ANSWER HERE"
"""nbgrader's own words for what is blank."""
SETTINGS = """# Made by `make class`, and kept if it is there already.
c = get_config()
c.Execute.timeout = 600  # seconds of a cell: on a busy machine the first imports take many
"""
HEAD = """# {title}: exercises

These belong to the chapter *{name}* of the book; read it first. Stars say how hard an exercise \
is and how many points it has. A cell with `raise NotImplementedError()` wants code in that line's \
place: run the cell, then the checks below it. No cell needs a GPU, a network or an account."""
QUIET = """import warnings

warnings.filterwarnings("ignore")  # nbgrader takes what a check writes to stderr for a failure"""


def make_worksheets(notebooks: Path, course: Path) -> list[str]:
    """Write both worksheets of every chapter that has exercises; return the chapters' names.

    Parameters
    ----------
    notebooks : Path
        Folder of the chapters.
    course : Path
        `source/` and `release/` in it are made anew; settings of nbgrader are added if it has none.

    Raises
    ------
    UserError
        An exercise is not complete.
    """
    read = {notebook: read_exercises(notebook) for notebook in sorted(notebooks.glob("*.ipynb"))}
    chapters = {notebook: exercises for notebook, exercises in read.items() if exercises}
    for kind in (SOURCE, RELEASE):
        shutil.rmtree(course / kind, ignore_errors=True)
        for notebook, exercises in chapters.items():
            folder = course / kind / notebook.stem
            folder.mkdir(parents=True)
            nbformat.write(worksheet(notebook, exercises, kind), folder / notebook.name)
    settings = course / "nbgrader_config.py"
    if not settings.exists():
        settings.write_text(SETTINGS, encoding="utf-8")
    return [notebook.stem for notebook in chapters]


def worksheet(notebook: Path, exercises: list[Exercise], kind: str) -> NotebookNode:
    """The worksheet of one chapter, as `SOURCE` or as `RELEASE`."""
    text = load_notebook(notebook).cells[0].source
    title = next(line for line in text.splitlines() if line.startswith("# "))[2:]
    cells = [_cell("markdown", HEAD.format(title=title, name=notebook.stem), "head", locked=True)]
    cells.append(_cell("code", QUIET, "quiet", locked=True))
    for exercise in exercises:
        cells += _cells(exercise, blank=kind == RELEASE)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})


def _cells(exercise: Exercise, *, blank: bool) -> list[NotebookNode]:
    task = f"## {exercise.title} {exercise.stars * '★'}\n\n{exercise.task}"
    cells = [_cell("markdown", task, f"{exercise.label}-task", locked=True)]
    if not exercise.stub:
        text = ANSWER if blank else exercise.solution
        return [*cells, _cell("markdown", text, exercise.label, solution=True, grade=True,
                              points=exercise.stars)]
    solved = f"    ### BEGIN SOLUTION\n{exercise.answer}\n    ### END SOLUTION"
    hidden = f"\n### BEGIN HIDDEN TESTS\n{exercise.hidden}\n### END HIDDEN TESTS"
    code = exercise.stub.replace(BLANK, WANTED if blank else solved)
    checks = exercise.checks + ("" if blank else hidden)
    return [*cells, _cell("code", code, exercise.label, solution=True),
            _cell("code", checks, f"{exercise.label}-checks", locked=True, grade=True,
                  points=exercise.stars)]


def _cell(kind: str, source: str, name: str, *, solution: bool = False, grade: bool = False,
          locked: bool = False, points: int | None = None) -> NotebookNode:
    known: dict[str, Any] = {
        "schema_version": SCHEMA, "grade_id": name, "cell_type": kind, "task": False,
        "solution": solution, "grade": grade, "locked": locked}
    new = new_markdown_cell if kind == "markdown" else new_code_cell
    return new(source, id=name, metadata={
        "nbgrader": known | ({"points": points} if points is not None else {})})
