"""Exercises, quizzes and worksheets of all chapters."""

import csv
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from functools import cache
from pathlib import Path
from textwrap import indent
from types import SimpleNamespace
from unittest import mock

import nbformat
import numpy as np
import pytest
import torch
import yaml

from rmutils.book.site.classroom import (
    KERNEL,
    RELEASE,
    SOURCE,
    make_variants,
    make_worksheets,
    read_exercises,
    self_checking_points,
    without_solutions,
    worksheet,
)
from rmutils.book.site.graded import graded
from rmutils.book.site.parameters import check_parameters
from rmutils.book.templates import template
from rmutils.core import paths
from rmutils.core.errors import UserError
from tests.notebooks.test_chapters import markdown
from tests.notebooks.test_parameters import write

CHAPTERS = [p for p in sorted(paths.NOTEBOOKS.glob("*.ipynb"))
            if p.stem not in ("essay", "provenance", "heads_at_work")]
"""A list of files has nothing to be exercised, and a page of five minutes asks nothing."""
LESSON = "guided_build"
"""Ten steps in place of exercises and a quiz."""
QUESTION = re.compile(r"^\d\. .+\n((?:   - [a-c]\) .+\n?){3})", re.MULTILINE)
SOLVED = re.compile(r" *### BEGIN SOLUTION\n.*?### END SOLUTION", re.DOTALL)
WRONG = yaml.safe_load(Path(__file__).with_name("wrong_answers.yml").read_text(encoding="utf-8"))
HIDDEN = re.compile(r"\n### BEGIN HIDDEN TESTS\n.*?### END HIDDEN TESTS", re.DOTALL)


exercises_of = cache(read_exercises)


def test_each_chapter_has_its_frame_exercises_and_quiz():
    """What a reader will be able to do, needs to know and has to spend stands before all else."""
    for chapter in CHAPTERS:
        if chapter.stem == LESSON:
            continue
        text, exercises = markdown(chapter), exercises_of(chapter)
        head, _, rest = text.partition("\n## ")
        assert head.count("\n- ") >= 3 and "You will be able to" in head, chapter
        assert re.search(r"\*\*Prerequisites:\*\* (.*\{ref\}`|none)", head), chapter
        minutes = re.search(r"\*\*Minutes:\*\* about (\d+) to read, \d+ for the exercises", head)
        assert minutes and int(minutes[1]) <= 15, chapter
        ends = [rest.index(f"\n## {name}\n") for name in ("Exercises", "Quiz", "Next")]
        assert ends == sorted(ends), chapter
        stars = [exercise.stars for exercise in exercises]
        assert len(stars) >= 3 and stars == sorted(stars) and {1, 2, 3} == {*stars}, chapter
        assert any(exercise.stub for exercise in exercises), chapter
        assert f"rmutils run {chapter.stem} -p" in exercises[0].task
        assert not any(re.search(r"\{\w+(:\w+)?\}`", exercise.task + exercise.solution)
                       for exercise in exercises), f"{chapter}: worksheets are read without Sphinx"
        quiz = text.partition("\n## Quiz\n")[2].partition("\n## ")[0]
        questions, _, answers = quiz.partition(":::{dropdown} Answers\n")
        options = [re.findall(r"- (\w)\)", part) for part in QUESTION.findall(questions)]
        assert options == [["a", "b", "c"]] * 3, chapter
        assert re.findall(r"^(\d)\. \*\*[a-c]\)\*\* \S", answers, re.MULTILINE) == [*"123"], chapter


def test_commands_name_parameters_that_chapters_have():
    """Also the type of each value; nothing is run."""
    for exercise in (one for chapter in CHAPTERS for one in exercises_of(chapter)):
        text = "\n".join([exercise.task, exercise.solution, *(
            exercise.task.replace(choices[0], other)
            for choices in exercise.varied for other in choices[1:])])
        for command in re.findall(r"rmutils run [^`\n]+", text):
            _, _, name, *words = shlex.split(command)
            given = {words[i + 1]: words[i + 2] for i, word in enumerate(words) if word == "-p"}
            assert given, exercise.label
            check_parameters(paths.NOTEBOOKS / f"{name}.ipynb", given)


def test_steps_of_the_lesson_have_minutes_and_hints():
    steps = exercises_of(paths.NOTEBOOKS / f"{LESSON}.ipynb")
    assert [step.title.partition(". ")[0] for step in steps] == [*map(str, range(1, 11))]
    minutes = [int(re.match(r"\*(\d+) minutes\.\*", step.task)[1]) for step in steps]
    assert 60 <= sum(minutes) <= 90
    assert f"{sum(minutes)} for the ten steps" in markdown(paths.NOTEBOOKS / f"{LESSON}.ipynb")
    for step in steps:
        assert step.stub and "<summary>Hint</summary>" in step.task


def run(*cells: str, **names) -> None:
    for cell in cells:
        exec(cell, names)


class Anything(float):
    """Equals everything, and is whatever else is asked of it."""

    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __hash__ = __len__ = __int__ = __index__ = lambda self: 1
    __iter__ = lambda self: iter([self, self])
    __getattr__ = __getitem__ = __call__ = __round__ = lambda self, *given, **named: self
    __sub__ = __rsub__ = __add__ = __radd__ = __mul__ = __rmul__ = __truediv__ = __getattr__
    __pow__ = __and__ = __rand__ = __invert__ = __abs__ = __neg__ = __getattr__
    __array_priority__ = 1000


BY_DESIGN = {
    "equals everything": "return Anything(1)", "not a number": "return float('nan')",
    "nothing": "return None", "the first result": "return FIRST",
    "the input itself": "return next(iter(locals().values()), None)"}
"""Bodies that are wrong whatever is asked."""


@pytest.fixture(scope="module")
def solved():
    """Source of answer and checks of each exercise."""
    found = []
    for path in CHAPTERS:
        cells = worksheet(path, exercises_of(path), SOURCE).cells
        code = [cell.source for cell in cells if cell.cell_type == "code" and cell.id != "first"]
        found += zip(code[::2], code[1::2], strict=True)
    return found


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_solutions_pass_the_checks_and_other_answers_fail_them(chapter, capsys):
    """The hidden checks compare with what the book itself computes. None may write to stderr, which
    nbgrader takes for a failure."""
    def asked(kind):
        cells = worksheet(chapter, exercises_of(chapter), kind).cells
        code = [c for c in cells if c.cell_type == "code" and c.id != "first"]
        return zip(code[::2], code[1::2], strict=True)

    for answer, checks in asked(SOURCE):
        run(answer.source, checks.source)
        assert not capsys.readouterr().err
        for mistake, body in WRONG[answer.id].items():
            wrong = SOLVED.sub(lambda _, body=body: indent(body, "    "), answer.source)
            assert wrong != answer.source
            with pytest.raises(Exception) as raised:  # noqa: B017, PT011
                run(wrong, checks.source)
            assert not isinstance(raised.value, (NameError, SyntaxError)), mistake
    for answer, checks in asked(RELEASE):
        assert "assert" in checks.source
        with pytest.raises(NotImplementedError):
            run(answer.source, checks.source)


def first_result(answer: str, checks: str, monkeypatch) -> list:
    """What the first check is told of the right answer; none where there is nothing to ask."""
    results = []

    def recorded(function):
        def call(*given, **named):
            results.append(function(*given, **named))
            return results[-1]
        return call

    with monkeypatch.context() as patch:
        patch.setattr("rmutils.book.site.graded.graded", recorded)
        run(answer, checks)
    return [] if re.search(r"def \w+\(\):\n.*\n    ### BEGIN", answer, re.DOTALL) else results[:1]


@pytest.mark.parametrize("mistake", BY_DESIGN)
def test_answers_that_are_wrong_by_design_fail(solved, mistake, monkeypatch):
    for answer, checks in solved:
        known = {"Anything": Anything}
        if "FIRST" in BY_DESIGN[mistake]:
            if not (results := first_result(answer, checks, monkeypatch)):
                continue
            known["FIRST"], = results
        wrong = SOLVED.sub(indent(BY_DESIGN[mistake], "    "), answer)
        assert "SOLUTION" not in wrong
        with pytest.raises(Exception):  # noqa: B017, PT011
            run(wrong, checks, **known)


@pytest.mark.parametrize("answer", [
    1, 0.5, "a", None, [1, (2, {3})], {"a": [1]}, range(3), Counter("aa"), Decimal("0.1"),
    np.float32(1), np.bool_(True), np.eye(2), np.array([1, "a"], object), torch.eye(2)])
def test_plain_data_is_graded(answer):
    assert graded(lambda given: given)(answer) is answer


@pytest.mark.parametrize("answer", [
    Anything(1), [Anything(1)], {"a": (1, {Anything(1)})}, {Anything(1): 2}, mock.ANY,
    np.array([Anything(1)], object), np.eye(2).view(np.matrix), type("str", (str,), {})("a"),
    torch.nn.Parameter(torch.eye(2)), iter([1])], ids=lambda answer: type(answer).__name__)
def test_other_objects_are_not_graded(answer):
    with pytest.raises(AssertionError, match="return plain data"):
        graded(lambda given: given)(answer)


def test_half_of_all_points_check_themselves_and_the_rest_have_a_rubric():
    found = [exercise for path in CHAPTERS for exercise in exercises_of(path)]
    points = sum(exercise.stars for exercise in found)
    assert 2 * sum(exercise.stars for exercise in found if exercise.stub) >= points
    checked = sum(exercise.stars for exercise in found if exercise.stub)
    assert self_checking_points(paths.NOTEBOOKS) == (checked, points)
    assert {exercise.label for exercise in found if exercise.stub} == {*WRONG}
    assert all(len(mistakes) > 1 for mistakes in WRONG.values())


def test_a_kernel_without_the_package_grades_nothing(tmp_path):
    """nbgrader goes on after an error, and gave right answers 0 points."""
    first = worksheet(CHAPTERS[0], [], SOURCE).cells[1].source

    def python(**env):
        return subprocess.run([sys.executable, "-S", "-c", first], env=env, cwd=tmp_path,
                              capture_output=True, text=True)

    assert "has no rmutils: choose the kernel" in python().stderr
    assert python(NBGRADER_EXECUTION="autograde").returncode == 1
    (tmp_path / "kernels" / KERNEL).mkdir(parents=True)
    bare = tmp_path / "python"
    bare.write_text(f"#!/bin/sh\nexec {sys.executable} -S \"$@\"\n")
    bare.chmod(0o755)
    (tmp_path / "kernels" / KERNEL / "kernel.json").write_text(json.dumps({"argv": [str(bare)]}))
    settings = {"get_config": lambda: SimpleNamespace(Execute=SimpleNamespace()),
                "__file__": str(tmp_path / "nbgrader_config.py")}
    with pytest.raises(SystemExit, match="has no rmutils, so nothing can be graded"):
        exec(template("nbgrader_config.txt"), settings)


@pytest.fixture(scope="module")
def worksheets(tmp_path_factory):
    """Folder of all worksheets; a teacher has worked in it."""
    folder = tmp_path_factory.mktemp("class")
    (folder / "submitted").mkdir()
    (folder / "nbgrader_config.py").write_text("# the teacher's own")
    assert make_worksheets(paths.NOTEBOOKS, folder) == [path.stem for path in CHAPTERS]
    return folder


def test_worksheets_are_nbgraders(worksheets):
    """The fields that nbgrader's schema 3 wants, ids that are unique, and a student's copy that is
    the teacher's less what stands between nbgrader's marks."""
    assert (worksheets / "nbgrader_config.py").read_text() == "# the teacher's own"
    assert (worksheets / "submitted").is_dir()
    for name in (path.stem for path in CHAPTERS):
        teacher, student = (nbformat.read(worksheets / kind / name / f"{name}.ipynb", as_version=4)
                            for kind in (SOURCE, RELEASE))
        nbformat.validate(student)
        known = [cell.metadata["nbgrader"] for cell in student.cells]
        assert known == [cell.metadata["nbgrader"] for cell in teacher.cells]
        assert len({k["grade_id"] for k in known}) == len(known)
        for cell, k in zip(student.cells, known, strict=True):
            assert k["schema_version"] == 3 and k["cell_type"] == cell.cell_type
            assert ("points" in k) == k["grade"] and not (k["locked"] and k["solution"])
        for ours, theirs in zip(teacher.cells, student.cells, strict=True):
            if ours.cell_type == "code":
                blank = SOLVED.sub("    # YOUR CODE HERE\n    raise NotImplementedError()",
                                   ours.source)
                assert HIDDEN.sub("", blank) == theirs.source
            elif ours.metadata["nbgrader"]["solution"]:
                assert theirs.source == "YOUR ANSWER HERE" != ours.source


def test_students_have_worksheets_of_their_own(tmp_path):
    """They differ from everybody's by a cell that nbgrader does not know."""
    chapters = ("01_preliminaries", "02_masking_sweep", "07_general_abilities")
    (tmp_path / "notebooks").mkdir()
    for name in chapters:
        shutil.copy(paths.NOTEBOOKS / f"{name}.ipynb", tmp_path / "notebooks")

    def made(names, seed):
        table = make_variants(tmp_path / "notebooks", tmp_path, names, seed)
        rows = [*csv.reader(table.read_text(encoding="utf-8").splitlines())][1:]
        return rows, {path.relative_to(tmp_path / "variants"): nbformat.read(path, 4).cells
                      for path in (tmp_path / "variants").rglob("*.ipynb")}

    names = [f"student{i}" for i in range(5)]
    rows, sheets = made(names, 7)
    assert {*sheets} == {Path(n, c, f"{c}.ipynb") for n in names for c in chapters}
    assert {row[2] for row in rows} == {"preliminaries-rerun", "general-abilities-rerun"}
    assert len({row[4] for row in rows if row[2] == "general-abilities-rerun"}) > 1
    for (student, chapter, _), cells in ((path.parts, cells) for path, cells in sheets.items()):
        notebook = paths.NOTEBOOKS / f"{chapter}.ipynb"
        exercises = read_exercises(notebook)
        own = [cell for cell in cells if "nbgrader" not in cell.metadata]
        assert [c for c in cells if c not in own] == worksheet(notebook, exercises, RELEASE).cells
        theirs = [row for row in rows if row[:2] == [student, chapter] and row[3] != row[4]]
        told = "\n".join(cell.source for cell in own)
        assert told.count("**Yours:**") == len(theirs) and all(f"`{r[4]}`" in told for r in theirs)
    again, sheets_again = made([names[3], "new"], 7)
    assert [row for row in again if row[0] == names[3]] == [r for r in rows if r[0] == names[3]]
    assert all(sheets[path] == cells for path, cells in sheets_again.items() if path in sheets)
    assert made(names, 8)[0] != rows
    for wrong in (["../a"], ["a", "a"], [".."], ["a/b"]):
        with pytest.raises(UserError, match="name of a student"):
            made(wrong, 0)


def test_a_book_without_solutions(tmp_path):
    shutil.copytree(paths.NOTEBOOKS, tmp_path / "chapters")
    without_solutions(tmp_path)
    for path in CHAPTERS:
        before, after = markdown(path), markdown(tmp_path / "chapters" / path.name)
        for exercise in exercises_of(path):
            assert f":label: {exercise.label}\n" in after and exercise.task[:40] in after
            assert (exercise.answer or exercise.solution)[:60] not in after
        assert "{solution}" not in after and "{dropdown} Answers" not in after
        assert after.count(":::") == before.count(":::") - 2 * (
                before.count(":::{solution}") + before.count(":::{dropdown} Answers"))
        assert after.partition("\n## Next\n")[2] == before.partition("\n## Next\n")[2]


@pytest.mark.parametrize(("text", "told"), [
    (":::{exercise} Easy ★\nDo it.\n:::", "has no label, or no solution"),
    (":::{exercise} Easy\n:label: a\nDo it.\n:::\n:::{solution} a\nSo.\n:::", "end with stars"),
    (":::{exercise} Easy ★\n:label: a\n```python\ndef f():\n    ...\n```\n:::\n"
     ":::{solution} a\nSo.\n:::", "a asks for code, but lacks"),
    (":::{exercise} Easy ★\n:label: a\n% yours: -p a 1 | -p a 2\nDo it.\n:::\n"
     ":::{solution} a\nSo.\n\n**Points:** this.\n:::", "does not say '-p a 1', which is to vary"),
    (":::{exercise} Easy ★★\n:label: a\nDo it.\n:::\n"
     ":::{solution} a\nSo.\n\n**Points:** this.\n:::", "what each of its stars is given for"),
])
def test_incomplete_exercise_is_refused(tmp_path, text, told):
    notebook = write(tmp_path / "nb.ipynb", "tau: float = 1")
    nb = nbformat.read(notebook, as_version=4)
    nb.cells[0].source = text
    nbformat.write(nb, notebook)
    with pytest.raises(UserError, match=f"nb.ipynb: .*{told}"):
        read_exercises(notebook)
