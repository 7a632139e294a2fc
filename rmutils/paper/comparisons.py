"""Lines of the audit: subjects of cells, rules of comparison, what a disagreement touches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import pandas as pd

from rmutils.core.errors import UserError
from rmutils.paper.tables import TABLE_INFO, TABLES, TEXT_NUMBERS, Printed, read_records, tolerance

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
    """All cells of the tables, in the order of the file."""
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
    """RetMask under its other names, as in Tables 7 and 10."""
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


Value = tuple[Printed, str]  # a number and its place


def place_of(record: dict) -> str:
    """Where a sentence stands, with the words that hold the number."""
    words = record.get("as_printed")
    return f"{record['source']} {record['place']}" + (f": {words}" if words else "")


@dataclass(frozen=True)
class Comparison:
    """Two values that ought to agree, where each stands, and whether they do."""

    check: str  # the kind of check
    what: str  # what both values are about
    value_a: float | str  # as printed or computed; text where names are compared
    place_a: str  # where it is printed, or from what it is computed
    value_b: float | str
    place_b: str
    tolerance: float  # difference that rounding for print cannot explain (`paper.tables.tolerance`)
    agrees: bool
    difference: float  # `value_a - value_b`; NaN for names


def equal(check: str, what: str, a: Printed, place_a: str, b: Printed, place_b: str) -> Comparison:
    """`a` and `b` are the same quantity: they may differ by less than rounding explains."""
    limit, difference = tolerance(a, b), a.value - b.value
    agrees = difference == 0 or abs(difference) < limit
    return Comparison(check, what, float(a), place_a, float(b), place_b, float(limit), agrees,
                      float(difference))


def above(check: str, what: str, a: Printed, place_a: str, b: Printed, place_b: str) -> Comparison:
    """`a` is said to be above `b`: contradicted if `b` is higher by more than rounding explains."""
    limit, difference = tolerance(a, b), a.value - b.value
    agrees = difference >= 0 or -difference < limit
    return Comparison(check, what, float(a), place_a, float(b), place_b, float(limit), agrees,
                      float(difference))


def same_text(check: str, what: str, a: str, place_a: str, b: str, place_b: str) -> Comparison:
    """`a` and `b` name the same thing."""
    return Comparison(check, what, a, place_a, b, place_b, 0.0, a == b, float("nan"))


ABOUT_SENTENCES = ("statement", "order of gains", "value in the text", "gain in the text",
                   "relative gain in the text")
"""Checks that compare a sentence with a table."""
ABOUT_SCORES = ("mean of tasks", "same cell", "English against Japanese")
"""Checks that compare two printed scores."""


def sentences(findings: pd.DataFrame) -> pd.DataFrame:
    """How often each sentence of the papers was compared with a table, and how often it agrees."""
    held = findings[findings.check.isin(ABOUT_SENTENCES)]
    # `statement` and `order of gains` quote the sentence in brackets, the others give its place.
    quoted = held.what.str.extract(r"\(((?:en|ja) .*)\)$")[0]
    sentence = quoted.fillna(held.place_a).rename("sentence")
    counts = (~held.agrees).groupby(sentence, sort=False).agg(["size", "sum"])
    return counts.set_axis(["comparisons", "disagree"], axis="columns").reset_index()


def beside_gains(findings: pd.DataFrame, tables: pd.DataFrame) -> pd.DataFrame:
    """Disagreements about a model's HELMET scores beside what RetMask is reported to gain on it."""
    scores = findings[findings.check.isin(ABOUT_SCORES)
                      & findings.what.str.endswith(("Average", *TASKS)) & ~findings.agrees]
    off = scores.difference.abs().groupby(scores.what.str.split(", ").str[0]).agg(["count", "max"])
    off = off.set_axis(["disagreements", "largest"], axis="columns")
    main = tables[(tables.source == "en") & tables.table.isin([1, 4])]
    value = main.set_index(["group", "column", "row"]).value
    gains = value.xs("RetMask", level="row") - value.xs("Before", level="row")
    beside = gains.groupby("group").agg(["min", "max"]).join(off)
    beside.columns = ["smallest_gain", "largest_gain", *off.columns]
    beside["disagreements"] = beside["disagreements"].fillna(0).astype(int)
    return beside.rename_axis("model").reset_index()
