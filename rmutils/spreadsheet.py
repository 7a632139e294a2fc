"""Tables as CSV that a spreadsheet opens safely.

Spreadsheets run a cell that begins with one of `DANGEROUS` as a formula, and what a model wrote can
begin with anything. The rule: text that begins so is written with an apostrophe before it, which
spreadsheets take as "this is text". Numbers, negative ones too, are written as they are.
"""

from __future__ import annotations

import re
from numbers import Real

import pandas as pd

DANGEROUS = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n")
"""What a formula can begin with, in either width, and white space that programs skip first."""

WITH_INTERVAL = re.compile(r"(-?\d+\.?\d*) \[(-?\d+\.?\d*),\u00a0(-?\d+\.?\d*)\]")
"""What `rmutils.report.number` writes."""


def to_csv(frame: pd.DataFrame) -> str:
    """A table as CSV, without its index.

    Numbers have all their digits. Text that is a number with its interval becomes three columns,
    with the digits that it has. A missing value is an empty cell. Text is safe, see above.
    """
    columns = {}
    for i, name in enumerate(_names(frame)):
        cells = [_cell(cell) for cell in frame.iloc[:, i]]
        columns[name] = [cell[0] if isinstance(cell, tuple) else cell for cell in cells]
        if any(isinstance(cell, tuple) for cell in cells):
            for end, place in (("low", 1), ("high", 2)):
                columns[f"{name}, {end}"] = [
                    cell[place] if isinstance(cell, tuple) else None for cell in cells]
    return pd.DataFrame(columns, dtype=object).to_csv(index=False, lineterminator="\n")


def _names(frame: pd.DataFrame) -> list[str]:
    """Columns' names as text; one that occurs again is numbered."""
    names = [_safe(str(name)) for name in frame.columns]
    counts = [names[: i + 1].count(name) for i, name in enumerate(names)]
    return [f"{n} ({count})" if count > 1 else n for n, count in zip(names, counts, strict=True)]


def _cell(cell: object) -> object:
    """What is written for a cell; the texts of value, low and high for one with an interval."""
    if isinstance(cell, Real) or cell is None or cell is pd.NA or cell is pd.NaT:
        return cell
    interval = WITH_INTERVAL.fullmatch(str(cell))
    return interval.groups() if interval else _safe(str(cell))


def _safe(text: str) -> str:
    return f"'{text}" if text.startswith(DANGEROUS) else text
