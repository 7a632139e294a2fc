"""The exercises of a chapter, read from the chapter itself.

They stand in its Markdown cells as the directives `exercise` and `solution` of sphinx-exercise, so
that the page, the student's worksheet and the teacher's have one source. Stars in a title say how
hard an exercise is. One that asks for code ends in a block of Python: a function whose body is the
line `...`, and, from the first unindented `assert` on, checks that the function has to pass. The
block in its solution has the lines that take the place of `...` and, in the same way, more checks,
which students do not see.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from rmutils.errors import UserError
from rmutils.parameters import load_notebook

BLANK = "    ..."
"""The line of a stub that the student replaces."""
STAR = "★"

_DIRECTIVE = re.compile(
    r"^(?P<fence>:{3,})\{(?P<kind>exercise|solution)\} (?P<title>[^\n]*)\n"
    r"(?P<options>(?::\w+:[^\n]*\n)*)(?P<body>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CHECKS = re.compile(r"^assert ", re.MULTILINE)


@dataclass(frozen=True)
class Exercise:
    """One exercise with its solution.

    Attributes
    ----------
    label, title : str
        The title without its stars.
    stars : int
        1 (easy) to 3 (hard).
    task, solution : str
        Markdown; of an exercise that asks for code, without the blocks of code.
    stub, checks : str
        Python that the student completes, and what it then has to pass; empty where a text is
        wanted.
    answer, hidden : str
        What takes the place of the stub's blank, and the checks that students do not see.
    """

    label: str
    title: str
    stars: int
    task: str
    solution: str
    stub: str
    checks: str
    answer: str
    hidden: str


def read_exercises(notebook: Path) -> list[Exercise]:
    """All exercises of a chapter, in its order.

    Raises
    ------
    UserError
        A label, a solution, stars, or one of the parts of an exercise that asks for code is
        missing.
    """
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
    task, stub, checks = _parts(found["body"].strip())
    solution, answer, hidden = _parts(solutions[label[1]])
    if stub and not (BLANK in stub.splitlines() and checks and answer and hidden):
        raise ValueError(f"{label[1]} asks for code, but lacks a line {BLANK!r}, checks after it, "
                         "or in its solution the lines that replace it and more checks")
    return Exercise(label[1], title, len(stars), task, solution if stub else
                    solutions[label[1]], stub, checks, answer, hidden)


def _parts(body: str) -> tuple[str, str, str]:
    """The text without its block of Python, and that block: what is to be written, and checks."""
    block = _CODE.search(body)
    if block is None:
        return body, "", ""
    first = _CHECKS.search(block[1])
    cut = first.start() if first else len(block[1])
    return (_CODE.sub("", body, count=1).strip(), block[1][:cut].rstrip(),
            block[1][cut:].rstrip())
