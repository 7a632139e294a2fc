"""Try worksheets with the real otter-grader: `python .ci/grading_otter.py [CHAPTER]`, minutes.

It grades in the Python that it is installed in, so .venv-otter is laid over .venv. `otter assign`
makes the student's worksheet, and checks the solutions. Three are handed in: a blank one, one with
the solutions, and one with a wrong answer to each exercise from tests/notebooks/wrong_answers.yml.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from textwrap import indent

import nbformat
from grading import MISTAKES, ROOT, call, tools
from overlay import lay_over

from rmutils.book.site.classroom import BLANK, OTTER, make_worksheets, read_exercises

TARGET = ROOT / ".venv-otter"
WANTED = "otter-grader>=7,<8"


def main() -> int:
    """Try one chapter's worksheet; exit status 1 if one gets other points."""
    chapter = sys.argv[1] if len(sys.argv) > 1 else "01_preliminaries"
    python = tools(TARGET, WANTED) / "python"
    lay_over(TARGET)
    asked = [e for e in read_exercises(ROOT / f"notebooks/{chapter}.ipynb") if e.stub]

    def wrong(label: str) -> str:
        return indent(next(iter(MISTAKES[label].values())), "    ")

    answers = {"blank": {}, "solved": {e.label: e.answer for e in asked},
               "wrong": {e.label: wrong(e.label) for e in asked}}
    given = {}
    with tempfile.TemporaryDirectory() as folder:
        course = Path(folder)
        make_worksheets(ROOT / "notebooks", course)

        def otter(*words: str | Path) -> None:
            call(course, python, "-m", "otter", *words)

        otter("assign", course / OTTER / chapter / f"{chapter}.ipynb", "made")
        text = (course / f"made/student/{chapter}.ipynb").read_text("utf-8")
        assert not any(e.hidden in text for e in asked)
        for name, answered in answers.items():
            sheet = nbformat.reads(text, 4)
            cells = {cell.source: cell for cell in sheet.cells}
            for e in asked:
                if e.label in answered:
                    cells[e.stub].source = e.stub.replace(BLANK, answered[e.label])
            (course / name).mkdir()
            nbformat.write(sheet, course / name / f"{chapter}.ipynb")
            otter("run", "-a", next(course.glob("made/autograder/*.zip")), "-o", name,
                  f"{name}/{chapter}.ipynb")
            found = json.loads((course / name / "results.json").read_text("utf-8"))["tests"]
            given[name] = sum(test.get("score", 0) for test in found)
    print(f"{chapter}: {given}")
    return 0 if given == {"blank": 0, "solved": sum(e.stars for e in asked), "wrong": 0} else 1


if __name__ == "__main__":
    sys.exit(main())
