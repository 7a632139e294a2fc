"""The subject of each cell of the tables, so that the same quantity is known wherever it stands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from rmutils.core.errors import UserError
from rmutils.paper.tables import TABLE_INFO, TABLES, TEXT_NUMBERS, Printed, read_records

T = TypeVar("T")
TASKS = ("Recall", "RAG", "Cite", "Re-rank", "ICL", "LongQA", "Summ")
"""The seven categories of HELMET; `Average` is their plain mean."""
JUDGED = ("LongQA", "Summ", "Average")
"""Those to which the judge (GPT-4o, or ROUGE in its place) makes a difference."""


class Quantity(NamedTuple):
    """A measured quantity: two cells with the same quantity ought to hold the same number."""

    model: str
    method: str
    data: str
    setting: str
    judge: str
    length: str
    task: str

    def __str__(self) -> str:
        return ", ".join(part for part in self if part)


@dataclass(frozen=True)
class Cell:
    """A cell of a table; `quantity` is None in tables that do not report results."""

    source: str
    table: int
    group: str
    row: str
    column: str
    number: Printed
    model: str
    quantity: Quantity | None

    @property
    def place(self) -> str:
        """The cell's address, e.g. ``en Table 8: Qwen3-8B / Random-Mask / Average``."""
        return f"{self.source} Table {self.table}: {self.group} / {self.row} / {self.column}"


def load_cells(folder: Path) -> list[Cell]:
    """All cells of the tables, in the order of the file.

    Raises
    ------
    UserError
        A file is malformed, or `table_info.csv` does not say what a table holds.
    """
    info = {(r["source"], r["table"]): r for r in read_records(TABLE_INFO, folder)}
    tau = {r["group"]: Printed.read(r["value"]).value for r in read_records(TEXT_NUMBERS, folder)
           if r["column"] == "threshold tau"}
    cells = []
    for r in read_records(TABLES, folder):
        about = info.get((r["source"], r["table"]))
        if not about:
            raise UserError(f"{folder}: {TABLE_INFO.file} has no line for Table {r['table']} of "
                            f"source {r['source']!r}, which {TABLES.file} has.")
        cells.append(Cell(r["source"], int(r["table"]), r["group"], r["row"], r["column"],
                          Printed.read(r["value"]), about["model"] or r["group"],
                          _quantity(r, about, tau)))
    return cells


def _quantity(record: dict, about: dict, tau: dict) -> Quantity | None:
    if about["columns_are"] == "statistics":
        return None
    model = about["model"] or record["group"]
    by_length = about["columns_are"] == "lengths"
    task = "Average" if by_length else record["column"]
    method = _method(record["row"], model, tau)
    trained = method != "Before"
    return Quantity(
        model, method,
        data=(about["data"] or record["group"]) if trained else "",
        setting=about["setting"] if trained else "",
        judge=about["judge"] if task in JUDGED else "",
        length=record["column"] if by_length else about["length"],
        task=task)


def _method(row: str, model: str, tau: dict) -> str:
    """RetMask under its other names.

    `After` (training with RetMask); the model's own name (Table 10: pairs that the model wrote
    itself, RetMask's default); the threshold that the paper uses for the model (Table 7).
    """
    if row == "After" or row == model:
        return "RetMask"
    try:
        return "RetMask" if Printed.read(row).value == tau.get(model) else row
    except ValueError:
        return row


def by(key: Callable[[T], object], items: Iterable[T]) -> dict[object, list[T]]:
    """Group `items`, both groups and members in the order in which they first appear."""
    groups = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return dict(groups)
