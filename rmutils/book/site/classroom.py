"""Exercises of the chapters as worksheets for nbgrader and otter-grader (`CONTRIBUTING.md`)."""

import csv
import json
import random
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import nbformat
import typer
from ipykernel.kernelspec import get_kernel_dict
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_raw_cell

from rmutils.book.site.parameters import load_notebook
from rmutils.book.templates import template
from rmutils.core import paths
from rmutils.core.errors import UserError
from rmutils.core.files import read_text

BLANK = "    ..."  # the line of a stub that the student replaces
STAR = "★"

_DIRECTIVE = re.compile(
    r"^(?P<fence>:{3,})\{(?P<kind>exercise|solution)\} (?P<title>[^\n]*)\n"
    r"(?P<options>(?::\w+:[^\n]*\n)*)(?P<body>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)
_ANSWERS = re.compile(r"^:::\{dropdown\} Answers\n.*?^:::\n", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FUNCTION = re.compile(r"^def (\w+)\(", re.MULTILINE)
_CHECKS = re.compile(r"^assert ", re.MULTILINE)
_YOURS = re.compile(r"^% yours: (.+)\n\n?", re.MULTILINE)
_POINTS = re.compile(r"^\*\*Points:\*\* (.+)\.\Z", re.MULTILINE)

SCHEMA = 3  # version of nbgrader's metadata, that of nbgrader 0.6 to 0.9
SOURCE, RELEASE, VARIANTS, OTTER = "source", "release", "variants", "otter"
"""Folders of a course of nbgrader: the teacher's worksheets and the students'; of those that are
one student's own; and of the teacher's for otter-grader."""
NAME = re.compile(r"\w[\w.-]*")  # what students may be called: it is the name of a folder
YOURS = "**Yours:** where the task above has `{before}`, take `{after}`."
WANTED = "    # YOUR CODE HERE\n    raise NotImplementedError()"
ANSWER = "YOUR ANSWER HERE"  # nbgrader's own words for what is blank
KERNEL = "rmutils"  # name of the course's kernel, the Python that made the worksheets
KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
"""What worksheets ask for."""
HEAD = """# {title}: exercises

These belong to the chapter *{name}* of the book; read it first. Stars say how hard an exercise \
is and how many points it has. A cell with `{blank}` wants code in that line's \
place: run the cell, then the checks below it. No cell needs a GPU, a network or an account."""
FIRST = template("worksheet_first.txt").rstrip("\n")
"""The first cell. Without the package no worksheet is graded."""


@dataclass(frozen=True)
class Exercise:
    """One exercise with its solution."""

    # `label`, `title`: The title without its stars.
    label: str
    title: str
    stars: int  # 1 (easy) to 3 (hard)
    # `task`, `solution`: Markdown; of an exercise that asks for code, without the blocks of code.
    task: str
    solution: str
    # `stub`, `checks`: Python that the student completes, and what it then has to pass; empty where
    # a text is wanted.
    stub: str
    checks: str
    # `answer`, `hidden`: What takes the place of the stub's blank, and the checks that students do
    # not see.
    answer: str
    hidden: str
    # Parts of the task, each with what may take its place; the first is what the task says.
    varied: tuple[tuple[str, ...], ...] = ()

    @property
    def looked_at(self) -> str:
        """Python before checks: what the student's function returns has to be plain data."""
        before = self.stub.partition(f"\n{BLANK}\n")[0].split("\n\n\n")[-1]
        names = [] if before.startswith("@") else _FUNCTION.findall(before)
        return "".join(f"from rmutils.book.site.graded import graded\n{name} = graded({name})\n"
                       for name in names)

    def drawn(self, student: str, seed: int) -> list[tuple[str, str]]:
        """What one student takes in place of what: always the same of one name and seed."""
        drawn = random.Random(f"{seed} {self.label} {student}")
        return [(choices[0], drawn.choice(choices)) for choices in self.varied]


def read_exercises(notebook: Path) -> list[Exercise]:
    """All exercises of a chapter, in its order."""
    text = "\n\n".join(cell.source for cell in load_notebook(notebook).cells
                       if cell.cell_type == "markdown")
    found = list(_DIRECTIVE.finditer(text))
    solutions = {m["title"].strip(): m["body"].strip() for m in found if m["kind"] == "solution"}
    try:
        return [_exercise(m, solutions) for m in found if m["kind"] == "exercise"]
    except ValueError as error:
        raise UserError(f"{notebook.name}: {error}") from None


def _exercise(found: re.Match, solutions: dict[str, str]) -> Exercise:
    title, _, stars = found["title"].strip().rpartition(" ")
    label = re.search(r"^:label: (\S+)$", found["options"], re.MULTILINE)
    if label is None or label[1] not in solutions:
        raise ValueError(f"the exercise {found['title']!r} has no label, or no solution names it")
    if not title or set(stars) != {STAR}:
        raise ValueError(f"the title {found['title']!r} does not end with stars")
    varied = tuple(tuple(line[1].split(" | ")) for line in _YOURS.finditer(found["body"]))
    task, stub, checks = _parts(_YOURS.sub("", found["body"]).strip())
    if missing := [choices[0] for choices in varied if choices[0] not in task]:
        raise ValueError(f"{label[1]} does not say {missing[0]!r}, which is to vary")
    solution, answer, hidden = _parts(solutions[label[1]])
    if stub and not (BLANK in stub.splitlines() and checks and answer and hidden):
        raise ValueError(f"{label[1]} asks for code, but lacks a line {BLANK!r}, checks after it, "
                         "or in its solution the lines that replace it and more checks")
    rubric = _POINTS.search(solution)
    if not stub and len(rubric[1].split("; ") if rubric else ()) != len(stars):
        raise ValueError(f"the solution of {label[1]} does not end with '**Points:** ...', which "
                         "says what each of its stars is given for")
    return Exercise(label[1], title, len(stars), task, solution if stub else
                    solutions[label[1]], stub, checks, answer, hidden, varied)


def _parts(body: str) -> tuple[str, str, str]:
    """The text without its block of Python, and that block: what is to be written, and checks."""
    block = _CODE.search(body)
    if block is None:
        return body, "", ""
    first = _CHECKS.search(block[1])
    cut = first.start() if first else len(block[1])
    return (_CODE.sub("", body, count=1).strip(), block[1][:cut].rstrip(), block[1][cut:].rstrip())


def make_worksheets(notebooks: Path, course: Path) -> list[str]:
    """Write both worksheets of every chapter that has exercises; return the chapters' names."""
    read = {notebook: read_exercises(notebook) for notebook in sorted(notebooks.glob("*.ipynb"))}
    chapters = {notebook: exercises for notebook, exercises in read.items() if exercises}
    for kind in (SOURCE, RELEASE, OTTER):
        shutil.rmtree(course / kind, ignore_errors=True)
        for notebook, exercises in chapters.items():
            folder = course / kind / notebook.stem
            folder.mkdir(parents=True)
            sheet = (otter_worksheet(notebook, exercises) if kind == OTTER
                     else worksheet(notebook, exercises, kind))
            nbformat.write(sheet, folder / notebook.name)
    kernel = course / "kernels" / KERNEL
    kernel.mkdir(parents=True, exist_ok=True)
    (kernel / "kernel.json").write_text(json.dumps(get_kernel_dict()), encoding="utf-8")
    settings = course / "nbgrader_config.py"
    if not settings.exists():
        settings.write_text(template("nbgrader_config.txt"), encoding="utf-8")
    return [notebook.stem for notebook in chapters]


def make_variants(notebooks: Path, course: Path, students: Sequence[str], seed: int) -> Path:
    """Write a worksheet of each chapter for each student; return the table of what was drawn."""
    for name in students:
        if not NAME.fullmatch(name) or students.count(name) > 1:
            raise UserError(f"{name!r} cannot be the name of a student's folder, or is there "
                            "twice. Names have letters, digits, dots and hyphens.")
    shutil.rmtree(course / VARIANTS, ignore_errors=True)
    rows = []
    for notebook in sorted(notebooks.glob("*.ipynb")):
        exercises = read_exercises(notebook)
        for name in students if exercises else ():
            sheet = worksheet(notebook, exercises, RELEASE, (name, seed))
            (course / VARIANTS / name / notebook.stem).mkdir(parents=True)
            nbformat.write(sheet, course / VARIANTS / name / notebook.stem / notebook.name)
            rows += [(name, notebook.stem, exercise.label, *pair) for exercise in exercises
                     for pair in exercise.drawn(name, seed)]
    table = course / f"{VARIANTS}.csv"
    with table.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("student", "chapter", "exercise", "task", "theirs"), *rows])
    return table


def self_checking_points(notebooks: Path) -> tuple[int, int]:
    """How many points the checks of all worksheets give, and how many there are."""
    found = [e for path in sorted(notebooks.glob("*.ipynb")) for e in read_exercises(path)]
    return sum(e.stars for e in found if e.stub), sum(e.stars for e in found)


def without_solutions(folder: Path) -> None:
    """Take solutions and answers of the quiz out of all notebooks of a folder, for good."""
    for path in folder.rglob("*.ipynb"):
        notebook = load_notebook(path)
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = unsolved(cell.source)
        nbformat.write(notebook, path)


def unsolved(markdown: str) -> str:
    """A text without its solutions and answers of a quiz."""
    return _ANSWERS.sub("", _DIRECTIVE.sub(
        lambda m: "" if m["kind"] == "solution" else m[0], markdown))


def worksheet(notebook: Path, exercises: list[Exercise], kind: str,
              own: tuple[str, int] | None = None) -> NotebookNode:
    """The worksheet of one chapter, as `SOURCE` or as `RELEASE`; `own` are a student and a seed."""
    cells = [_cell("markdown", _head(notebook, "raise NotImplementedError()"), "head", locked=True)]
    cells.append(_cell("code", FIRST, "first", locked=True))
    for exercise in exercises:
        task, *rest = _cells(exercise, blank=kind == RELEASE)
        told = [YOURS.format(before=before, after=after) for before, after in
                (exercise.drawn(*own) if own else ()) if before != after]
        yours = [new_markdown_cell("\n\n".join(told), id=f"{exercise.label}-yours")] if told else []
        cells += [task, *yours, *rest]
    return new_notebook(cells=cells, metadata={"kernelspec": KERNELSPEC})


def otter_worksheet(notebook: Path, exercises: list[Exercise]) -> NotebookNode:
    """The teacher's worksheet of one chapter, from which `otter assign` makes the student's."""
    cells = [new_raw_cell(f"# ASSIGNMENT CONFIG\nname: {notebook.stem}\ngenerate: true\n"
                          "export_cell:\n  pdf: false"),
             new_markdown_cell(_head(notebook, BLANK.strip())), new_code_cell(FIRST)]
    for exercise in exercises:
        code = exercise.stub.replace(
            BLANK, f"    # BEGIN SOLUTION\n{exercise.answer}\n    # END SOLUTION")
        graded = "all_or_nothing" if exercise.stub else "manual"
        cells += [
            new_raw_cell(f"# BEGIN QUESTION\nname: {exercise.label}\npoints: {exercise.stars}\n"
                         f"{graded}: true"),
            new_markdown_cell(_task(exercise)), new_raw_cell("# BEGIN SOLUTION"),
            new_code_cell(code) if code else new_markdown_cell(exercise.solution),
            new_raw_cell("# END SOLUTION")]
        if code:
            shown, hidden = (exercise.looked_at + c for c in (exercise.checks, exercise.hidden))
            cells += [new_raw_cell("# BEGIN TESTS"), new_code_cell(shown),
                      new_code_cell(f"# HIDDEN\n{hidden}"), new_raw_cell("# END TESTS")]
        cells.append(new_raw_cell("# END QUESTION"))
    return new_notebook(cells=cells, metadata={"kernelspec": KERNELSPEC})


def _head(notebook: Path, blank: str) -> str:
    text = load_notebook(notebook).cells[0].source
    title = next(line for line in text.splitlines() if line.startswith("# "))[2:]
    return HEAD.format(title=title, name=notebook.stem, blank=blank)


def _task(exercise: Exercise) -> str:
    return f"## {exercise.title} {exercise.stars * STAR}\n\n{exercise.task}"


def _cells(exercise: Exercise, *, blank: bool) -> list[NotebookNode]:
    cells = [_cell("markdown", _task(exercise), f"{exercise.label}-task", locked=True)]
    if not exercise.stub:
        text = ANSWER if blank else exercise.solution
        return [*cells, _cell("markdown", text, exercise.label, solution=True, grade=True,
                              points=exercise.stars)]
    solved = f"    ### BEGIN SOLUTION\n{exercise.answer}\n    ### END SOLUTION"
    hidden = f"\n### BEGIN HIDDEN TESTS\n{exercise.hidden}\n### END HIDDEN TESTS"
    code = exercise.stub.replace(BLANK, WANTED if blank else solved)
    checks = exercise.looked_at + exercise.checks + ("" if blank else hidden)
    return [*cells, _cell("code", code, exercise.label, solution=True),
            _cell("code", checks, f"{exercise.label}-checks", locked=True, grade=True,
                  points=exercise.stars)]


def _cell(kind: str, source: str, name: str, *, solution: bool = False, grade: bool = False,
          locked: bool = False, points: int | None = None) -> NotebookNode:
    known: dict[str, Any] = {"schema_version": SCHEMA, "grade_id": name, "cell_type": kind,
                             "task": False, "solution": solution, "grade": grade, "locked": locked}
    new = new_markdown_cell if kind == "markdown" else new_code_cell
    return new(source, id=name, metadata={
        "nbgrader": known | ({"points": points} if points is not None else {})})


def main(students: Annotated[Path | None, typer.Option(help="File of names, one a line.")] = None,
         seed: Annotated[int, typer.Option(help="Draws what varies.")] = 0) -> None:
    """Write the worksheets and say where they are; exit status 2 if an exercise is not complete."""
    course = paths.ROOT / "class"
    try:
        names = make_worksheets(paths.NOTEBOOKS, course)
        print(f"{len(names)} worksheets.\n  for students: {course / RELEASE}\n"
              f"  with solutions: {course / SOURCE}; for otter-grader: {course / OTTER}")
        if students:
            listed = read_text(students).split()
            print(f"  for each of {len(listed)} students: {course / VARIANTS}; what differs: "
                  f"{make_variants(paths.NOTEBOOKS, course, listed, seed)}")
    except UserError as error:
        typer.echo(error, err=True)
        raise typer.Exit(2) from None


if __name__ == "__main__":
    typer.run(main)
