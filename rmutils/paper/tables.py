"""The transcribed paper and the authors' published scores; what rounded numbers can tell."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import pandas as pd

from rmutils.core.errors import UserError
from rmutils.core.files import intact
from rmutils.core.paths import DATA, restore
from rmutils.core.validation import checked


@dataclass(frozen=True)
class Printed:
    """A number with the open interval of exact numbers that it may stand for, half a unit in its
    last printed place to either side; interval arithmetic carries it along."""

    value: Fraction
    low: Fraction
    high: Fraction

    @classmethod
    @lru_cache(maxsize=16384)  # a file has most of its numbers several times
    def read(cls, text: str) -> Printed:
        """Read digits as they are printed: ``46.40``, ``5e-7``, ``294K`` (thousands)."""
        digits, unit = (text[:-1], 1000) if text.endswith("K") else (text, 1)
        try:
            decimal = Decimal(digits)
        except InvalidOperation:
            raise ValueError(f"{text!r} is not a number") from None
        if not decimal.is_finite():
            raise ValueError(f"{text!r} is not a finite number")
        half = Fraction(10) ** decimal.as_tuple().exponent / 2
        value = Fraction(decimal)
        return cls(value * unit, (value - half) * unit, (value + half) * unit)

    @classmethod
    def exact(cls, value: int | float | Fraction) -> Printed:
        """A number that was not rounded."""
        return cls(Fraction(value), Fraction(value), Fraction(value))

    def __add__(self, other: Printed | int) -> Printed:
        other = _printed(other)
        return Printed(self.value + other.value, self.low + other.low, self.high + other.high)

    def __sub__(self, other: Printed | int) -> Printed:
        other = _printed(other)
        return Printed(self.value - other.value, self.low - other.high, self.high - other.low)

    def __mul__(self, other: Printed | int) -> Printed:
        other = _printed(other)
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Printed(self.value * other.value, min(ends), max(ends))

    def __truediv__(self, other: Printed | int) -> Printed:
        other = _printed(other)
        if other.low <= 0 <= other.high:
            raise ZeroDivisionError("the divisor may be zero")
        return self * Printed(1 / other.value, 1 / other.high, 1 / other.low)

    def __float__(self) -> float:
        return float(self.value)


def mean(numbers: Sequence[Printed]) -> Printed:
    """Plain mean of printed numbers; its interval is the mean of theirs."""
    return sum(numbers, Printed.exact(0)) / len(numbers)


def tolerance(a: Printed, b: Printed) -> Fraction:
    """Smallest difference between `a` and `b` that rounding cannot explain: 0.01 for 45.75 and
    45.76, whose difference is not below it."""
    if a.value > b.value:
        a, b = b, a
    return (a.high - a.value) + (b.value - b.low)


def _printed(number: Printed | int) -> Printed:
    return number if isinstance(number, Printed) else Printed.exact(number)


PAPER = DATA / "paper"
EDITIONS = {"en": "English edition", "ja": "Japanese edition"}
"""The sources of the RetMask paper, as pages name them."""


@dataclass(frozen=True)
class Schema:
    """One CSV file of `data/paper/`: its columns, and which of them hold what."""

    file: str
    columns: tuple[str, ...]
    numbers: tuple[str, ...] = ()
    integers: tuple[str, ...] = ()
    blank: tuple[str, ...] = ()
    key: tuple[str, ...] = ()


def _schema(file: str, columns: str, numbers: str = "", integers: str = "", blank: str = "",
            key: str = "") -> Schema:
    lists = (columns, numbers, integers, blank, key)
    return Schema(file, *(tuple(names.split()) for names in lists))


TABLES = _schema("tables.csv", "source table group row column value",
                 numbers="value", integers="table", key="source table group row column")
TABLE_INFO = _schema(
    "table_info.csv",
    "source table columns_are model data setting judge length caption_lengths about",
    integers="table", key="source table")
NAMES = _schema("names.csv", "source part printed canonical", key="source part printed")
BOLD = _schema("bold.csv", "source table group row column", integers="table",
               key="source table group row column")
TEXT_NUMBERS = _schema(
    "text_numbers.csv",
    "source place quantity group row versus table column value unit as_printed",
    numbers="value")
TEXT_FACTS = _schema("text_facts.csv", "source place quantity group value")
STATEMENTS = _schema("statements.csv",
                     "source place table group row versus column how_often as_printed",
                     integers="table")
GAIN_ORDERS = _schema("gain_orders.csv", "source place larger smaller as_printed")
FAILURE_EXAMPLES = _schema(
    "failure_examples.csv", "source place kind masked passed as_printed unique",
    key="source place masked")
SCORE_BINS = _schema("score_bins.csv", "source place group heads low high label value",
                     numbers="low high value", integers="heads", blank="value", key="group label")
def _published(prefix: str) -> tuple[Schema, Schema, Schema]:
    """Tables that are derived from the authors' per-run scores: of heads, of models, by runs."""
    return (
        _schema(f"{prefix}_head_scores.csv", "model layer head runs mean sd low high",
                numbers="mean sd low high", integers="layer head runs", key="model layer head"),
        _schema(f"{prefix}_summary.csv", "model runs heads resamples seed statistic value low high",
                numbers="value low high", integers="runs heads resamples seed",
                key="model statistic"),
        _schema(f"{prefix}_stability.csv",
                "model runs draws top_k seed overlap overlap_low overlap_high "
                "spearman spearman_low spearman_high",
                numbers="overlap overlap_low overlap_high spearman spearman_low spearman_high",
                integers="runs draws top_k seed", key="model runs"))


PUBLISHED_SCORES, PUBLISHED_SUMMARY, PUBLISHED_STABILITY = _published("published")
DISTINCT_SCORES, DISTINCT_SUMMARY, DISTINCT_STABILITY = _published("distinct")
"""The same with each distinct map counted once: see `rmutils.paper.head_checks`."""
SCORING_SUMMARY = _published("scoring")[1]  # summary of the distinct maps in which any head scores
PUBLISHED_MAPS = _schema("published_maps.csv", "model run map heads", integers="run map heads",
                         key="model run")


def read_records(schema: Schema, folder: Path = PAPER) -> list[dict[str, str]]:
    """Rows of a file as text, digits as printed, each checked against the schema."""
    path = Path(folder) / schema.file
    fix = f"Restore it with: {restore(path)}"
    try:
        with intact(path).open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            if tuple(header) != schema.columns:
                raise UserError(f"{path}, line 1: columns are {','.join(header)!r}, "
                                f"expected {','.join(schema.columns)!r}. {fix}")
            records, seen = [], {}
            for fields in reader:
                problem = _problem(schema, fields, seen, reader.line_num)
                if problem:
                    raise UserError(f"{path}, line {reader.line_num}: {problem}. {fix}")
                records.append(dict(zip(schema.columns, fields, strict=True)))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist. {fix}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} is not a CSV file in UTF-8 ({error}). {fix}") from error
    return records


def _problem(schema: Schema, fields: list[str], seen: dict, line: int) -> str | None:
    """Say what is wrong with one row; `seen` remembers the keys of earlier rows and their lines."""
    if len(fields) != len(schema.columns):
        return f"{len(fields)} fields, expected {len(schema.columns)}"
    record = dict(zip(schema.columns, fields, strict=True))
    for name in schema.integers:
        if not record[name].isdecimal():
            return f"{name} is {record[name]!r}, expected a whole number"
    for name in schema.numbers:
        if name in schema.blank and not record[name]:
            continue
        try:
            Printed.read(record[name])
        except ValueError as error:
            return f"{name}: {error}"
    key = tuple(record[name] for name in schema.key)
    if key and seen.setdefault(key, line) != line:
        return f"{' / '.join(key)} is already on line {seen[key]}"
    return None


def _frame(schema: Schema, folder: Path | str = PAPER) -> pd.DataFrame:
    folder = Path(folder)
    file = folder / schema.file
    return _read_frame(schema, folder, file.stat().st_mtime_ns if file.exists() else 0).copy()


@lru_cache(maxsize=32)
def _read_frame(schema: Schema, folder: Path, changed: int) -> pd.DataFrame:
    """Read once as long as the file does not change: checking each number takes seconds."""
    frame = pd.DataFrame(read_records(schema, folder), columns=list(schema.columns))
    for name in schema.numbers:
        frame[name] = [float(Printed.read(text)) if text else float("nan") for text in frame[name]]
    return frame.astype(dict.fromkeys(schema.integers, int))


@checked
def load_tables(folder: Path | str = PAPER) -> pd.DataFrame:
    """Return every number of the tables: 1-12 of the English paper, 1-7 of the Japanese one.

    Parameters
    ----------
    folder : Path
        Where `tables.csv` lies. Default: the transcription that ships with the book.

    Returns
    -------
    DataFrame
        `source` (`en`, `ja`), `table` (int), `group` (model or training data), `row` (strategy,
        threshold, ...), `column` (8K, Recall, GPQA, ...), `value` (float). Rows and columns have
        one name in both papers; `data/paper/names.csv` says what was printed.

    Raises
    ------
    UserError
        The file is missing or malformed.

    Examples
    --------
    >>> from rmutils import load_tables
    >>> tables = load_tables().query("source == 'en' and group == 'Llama-3.1-8B-Instruct'")
    >>> tables.query("table == 1 and row == 'RetMask'").set_index("column")["value"].to_dict()
    {'8K': 58.14, '16K': 56.92, '32K': 53.48, '64K': 53.15, '128K': 48.68}
    """
    return _frame(TABLES, folder)


def printed_table(source: str, table: int) -> pd.DataFrame:
    """One table in its own layout and with its own digits: text, empty where nothing is printed."""
    records = pd.DataFrame(read_records(TABLES))
    chosen = records[(records.source == source) & (records.table == str(table))]
    if chosen.empty:
        raise UserError(f"no Table {table} in source {source!r}: the English paper (en) has "
                        f"Tables 1-12, the Japanese one (ja) 1-7.")
    cells = chosen.set_index(["group", "row", "column"]).value.unstack("column", fill_value="")
    rows = pd.MultiIndex.from_frame(chosen[["group", "row"]].drop_duplicates())
    return cells.reindex(index=rows, columns=list(chosen.column.unique()))


def load_text_numbers() -> pd.DataFrame:
    """Numbers of the running text, each with its place and the words around it."""
    return _frame(TEXT_NUMBERS)


def load_score_bins() -> pd.DataFrame:
    """Figure 3 of the Japanese paper: percent of heads per score bin, NaN where none is printed."""
    return _frame(SCORE_BINS)


def load_published_scores(folder: Path = PAPER, *, distinct: bool = False) -> pd.DataFrame:
    """Score of each head over the published runs, with a 95 % interval."""
    return _frame(DISTINCT_SCORES if distinct else PUBLISHED_SCORES, folder)


def load_published_summary(*, distinct: bool = False) -> pd.DataFrame:
    """Whole-model statistics of the published scores, with 95 % intervals over runs."""
    return _frame(DISTINCT_SUMMARY if distinct else PUBLISHED_SUMMARY)


def load_published_stability() -> pd.DataFrame:
    """Agreement of the ranking from a few of the published runs with that from all of them."""
    return _frame(PUBLISHED_STABILITY)


def load_published_maps() -> pd.DataFrame:
    """Which published runs have the same scores: `model`, `run`, `map`, `heads` above 0."""
    return _frame(PUBLISHED_MAPS)


COMPANIONS = _schema("companions.csv", "source table group row column value", numbers="value",
                     key="source table group row column")


def load_companions() -> pd.DataFrame:
    """The tables and lists of the texts that this book reads beside the paper."""
    return _frame(COMPANIONS)
