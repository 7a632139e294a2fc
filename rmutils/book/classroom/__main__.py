"""`python -m rmutils.book.classroom`, called by `make class`: the worksheets of all chapters.

`class/` is then a course of nbgrader, and also useful without it.
"""

from __future__ import annotations

import sys

from rmutils import paths
from rmutils.book.classroom.worksheets import RELEASE, SOURCE, make_worksheets
from rmutils.errors import UserError


def main() -> None:
    """Write the worksheets and say where they are; exit status 2 if an exercise is not complete."""
    course = paths.ROOT / "class"
    try:
        names = make_worksheets(paths.NOTEBOOKS, course)
    except UserError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    print(f"{len(names)} worksheets.\n  for students: {course / RELEASE}\n"
          f"  with solutions: {course / SOURCE}")


if __name__ == "__main__":
    main()
