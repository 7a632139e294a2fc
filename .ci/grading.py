"""Try worksheets with the real nbgrader: `python .ci/grading.py [CHAPTER]`, some minutes.

nbgrader is installed into .venv-grading, for it wants other versions than the book. A course is
made in a folder of its own. Thirty made-up students, each with a worksheet of their own, hand in
blanks, the solutions, or wrong answers from tests/notebooks/wrong_answers.yml, drawn with a seed.
All are graded and get feedback, and the points of each are compared with what they should be.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from textwrap import indent

import nbformat
import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rmutils.book.site.classroom import RELEASE, SOURCE, VARIANTS, make_variants, make_worksheets  # noqa: E402

MISTAKES = yaml.safe_load((ROOT / "tests/notebooks/wrong_answers.yml").read_text("utf-8"))
"""Label of an exercise -> what is wrong -> the code of such an answer."""
TARGET, SEED = ROOT / ".venv-grading", 0
STUDENTS = [f"student{number:02d}" for number in range(30)]
NBGRADER = "nbgrader>=0.9,<1"
BLANK, RIGHT = "blank", "right"
MARKS = re.compile(r" *### (BEGIN|END) SOLUTION\n?")
SOLVED = re.compile(r" *### BEGIN SOLUTION\n.*?### END SOLUTION", re.DOTALL)


def tools(target: Path, wanted: str) -> Path:
    """Where the programs of an environment with a grader are; it is made if it is not there."""
    if not (target / ".complete").exists():
        venv.create(target, clear=True, with_pip=True)
        subprocess.run([target / "bin/pip", "install", "--quiet", wanted], check=True)
        (target / ".complete").touch()
    return target / "bin"


def call(course: Path, *words: str | Path, **env: str) -> None:
    """Run a program in a course; if it fails, stop with its last words."""
    run = subprocess.run(words, cwd=course, text=True, env={**os.environ, **env},
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if run.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}:\n{run.stdout[-3000:]}")


def hand_in(course: Path, chapter: str) -> dict[str, float]:
    """Write the submissions of a class; what each student's checks should give."""
    source = nbformat.read(course / SOURCE / chapter / f"{chapter}.ipynb", 4)
    drawn, expected = random.Random(SEED), {}
    for number, student in enumerate(STUDENTS):
        sheet = nbformat.read(course / VARIANTS / student / chapter / f"{chapter}.ipynb", 4)
        cells, points = {cell.id: cell for cell in sheet.cells}, 0.0
        for solved in source.cells:
            if solved.id not in MISTAKES:
                continue
            how = [BLANK, RIGHT, *MISTAKES[solved.id]][
                number if number < 2 else drawn.randrange(2 + len(MISTAKES[solved.id]))]
            if how == RIGHT:
                cells[solved.id].source = MARKS.sub("", solved.source)
                points += next(c.metadata.nbgrader.points for c in source.cells
                               if c.id == f"{solved.id}-checks")
            elif how != BLANK:
                wrong = indent(MISTAKES[solved.id][how], "    ")
                cells[solved.id].source = SOLVED.sub(lambda _, wrong=wrong: wrong, solved.source)
        folder = course / "submitted" / student / chapter
        folder.mkdir(parents=True)
        nbformat.write(sheet, folder / f"{chapter}.ipynb")
        expected[student] = points
    return expected


def main() -> int:
    """Try one chapter's worksheet; exit status 1 if a student gets other points."""
    chapter = sys.argv[1] if len(sys.argv) > 1 else "01_preliminaries"
    path = f"{tools(TARGET, NBGRADER)}{os.pathsep}{os.environ['PATH']}"

    with tempfile.TemporaryDirectory() as folder:
        course = Path(folder)
        make_worksheets(ROOT / "notebooks", course)
        make_variants(ROOT / "notebooks", course, STUDENTS, SEED)
        ours = nbformat.read(course / RELEASE / chapter / f"{chapter}.ipynb", 4)

        def nbgrader(*words: str) -> None:
            call(course, TARGET / "bin/nbgrader", *words, PATH=path)

        nbgrader("generate_assignment", chapter, "--create", "--force")
        theirs = nbformat.read(course / RELEASE / chapter / f"{chapter}.ipynb", 4)
        assert [c.source for c in theirs.cells] == [c.source for c in ours.cells], "other blanks"
        expected = hand_in(course, chapter)
        started = time.monotonic()
        nbgrader("autograde", chapter, "--create")
        minutes = (time.monotonic() - started) / 60
        nbgrader("generate_feedback", chapter)
        nbgrader("export")
        rows = [line.split(",") for line in (course / "grades.csv").read_text().splitlines()]
        score, student = rows[0].index("raw_score"), rows[0].index("student_id")
        given = {row[student]: float(row[score]) for row in rows[1:]}
        pages = len(list((course / "feedback").glob(f"*/{chapter}/{chapter}.html")))

        shutil.rmtree(course / "autograded")
        kernel = course / "kernels/rmutils/kernel.json"
        kernel.write_text(kernel.read_text().replace(sys.executable, str(TARGET / "bin/python")))
        try:
            nbgrader("autograde", chapter, "--force")
            stopped = False
        except SystemExit as told:
            stopped = "has no rmutils, so nothing can be graded" in str(told)

    wrong = {name: (given.get(name), points) for name, points in expected.items()
             if given.get(name) != points}
    print(f"{chapter}: {len(expected)} submissions graded in {minutes:.1f} minutes, "
          f"{pages} pages of feedback; points from {min(given.values()):g} to "
          f"{max(given.values()):g}.")
    print(*(f"{name} got {got}, not {points}" for name, (got, points) in wrong.items()), sep="\n")
    if not stopped:
        print("A kernel without rmutils was graded with.")
    return 0 if not wrong and stopped and pages == len(expected) else 1


if __name__ == "__main__":
    sys.exit(main())
