"""The audit: checks of tables and running text, against each other and against themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from fractions import Fraction
from pathlib import Path

import pandas as pd

from rmutils.core.errors import UserError
from rmutils.paper import comparisons, head_checks
from rmutils.paper.tables import (
    BOLD,
    FAILURE_EXAMPLES,
    GAIN_ORDERS,
    PAPER,
    STATEMENTS,
    TABLE_INFO,
    TEXT_FACTS,
    TEXT_NUMBERS,
    Printed,
    mean,
    read_records,
)


def same_cell(cells: list[comparisons.Cell]) -> Iterator[comparisons.Comparison]:
    """The same quantity in two tables: each later place against the first."""
    for quantity, places in comparisons.by(lambda cell: cell.quantity, cells).items():
        if quantity is None:
            continue
        first, *later = places
        for cell in later:
            check = "same cell" if cell.source == first.source else "English against Japanese"
            yield comparisons.equal(check, str(quantity), first.number, first.place, cell.number,
                                    cell.place)


def task_means(cells: list[comparisons.Cell]) -> Iterator[comparisons.Comparison]:
    """Mean of the seven tasks of a row against the average that a paper prints."""
    quantities = comparisons.by(lambda cell: cell.quantity, cells)
    rows = comparisons.by(lambda cell: (cell.source, cell.table, cell.group, cell.row), cells)
    for (source, table, group, row), members in rows.items():
        tasks = {cell.column: cell for cell in members}
        if not set(comparisons.TASKS) <= set(tasks):
            continue
        average = mean([tasks[task].number for task in comparisons.TASKS])
        quantity = tasks["Summ"].quantity._replace(task="Average")
        place = f"{source} Table {table}: {group} / {row} / mean of the seven tasks"
        printed = quantities.get(quantity, [])
        for cell in [c for c in printed if c.source == source] or printed:
            yield comparisons.equal("mean of tasks", str(quantity), average, place, cell.number,
                                    cell.place)


def bold_is_best(cells: list[comparisons.Cell], folder: Path) -> Iterator[comparisons.Comparison]:
    """In each column of a table with bold numbers, those and only those are the highest."""
    bold = {(r["source"], int(r["table"]), r["group"], r["row"], r["column"])
            for r in read_records(BOLD, folder)}
    tables = {(source, table) for source, table, *_ in bold}
    columns = comparisons.by(lambda cell: (cell.source, cell.table, cell.model, cell.column),
                 (cell for cell in cells if (cell.source, cell.table) in tables))
    for (source, table, model, column), members in columns.items():
        highest = max(cell.number.value for cell in members)
        best = [cell for cell in members if cell.number.value == highest]
        marked = [cell for cell in members
                  if (cell.source, cell.table, cell.group, cell.row, cell.column) in bold]
        lowest = min((float(cell.number) for cell in marked), default=float("nan"))
        yield comparisons.Comparison("bold is best", f"{model}, {column}: highest (a), bold (b)",
                         float(highest), _places(best), lowest,
                         _places(marked) or f"{source} Table {table}: nothing is bold",
                         0.0, best == marked, float(highest) - lowest)


def _places(cells: list[comparisons.Cell]) -> str:
    return " and ".join(cell.place for cell in cells)


def captions(cells: list[comparisons.Cell], folder: Path) -> Iterator[comparisons.Comparison]:
    """Input lengths that a caption lists against those that its table has."""
    columns = comparisons.by(lambda cell: (cell.source, str(cell.table)), cells)
    for r in read_records(TABLE_INFO, folder):
        if r["columns_are"] == "lengths" and r["caption_lengths"]:
            place = f"{r['source']} Table {r['table']}"
            found = dict.fromkeys(cell.column for cell in columns[r["source"], r["table"]])
            yield comparisons.same_text("caption", "input lengths", r["caption_lengths"],
                            f"{place}: caption", " ".join(found), f"{place}: columns")


def repeated_numbers(folder: Path) -> Iterator[comparisons.Comparison]:
    """A number that the text states more than once, in one paper or in both."""
    names = ("quantity", "group", "row", "versus", "table", "column")
    for key, records in comparisons.by(lambda r: tuple(r[n] for n in names),
                           read_records(TEXT_NUMBERS, folder)).items():
        first, *later = records
        what = ", ".join(dict.fromkeys(part for part in key if part and not part.isdecimal()))
        for r in later:
            yield comparisons.equal("number stated twice", what, Printed.read(first["value"]),
                        comparisons.place_of(first), Printed.read(r["value"]),
                                    comparisons.place_of(r))


def repeated_facts(folder: Path) -> Iterator[comparisons.Comparison]:
    """A name or a definition that the text states more than once, in one paper or in both."""
    for (quantity, group), records in comparisons.by(lambda r: (r["quantity"], r["group"]),
                                         read_records(TEXT_FACTS, folder)).items():
        first, *later = records
        what = f"{group}: {quantity}" if group else quantity
        for r in later:
            yield comparisons.same_text("fact stated twice", what, first["value"],
                            comparisons.place_of(first), r["value"], comparisons.place_of(r))


def unique_failures(folder: Path) -> Iterator[comparisons.Comparison]:
    """A failure called unique to masked retrieval heads: with others masked the response passes."""
    told = {True: "passes", False: "fails"}
    for (source, place), records in comparisons.by(lambda r: (r["source"], r["place"]),
                                       read_records(FAILURE_EXAMPLES, folder)).items():
        of = {r["masked"]: r for r in records}
        if words := of["retrieval"]["unique"]:
            other = of["non-retrieval"]
            yield comparisons.same_text(
                "unique failure", f"{other['kind']}, other heads masked", told[True],
                f"{source} {place}: {words}", told[other["passed"] == "yes"],
                comparisons.place_of(other))


def quoted_numbers(cells: list[comparisons.Cell], folder: Path) -> Iterator[comparisons.Comparison]:
    """Values and gains in the text against the tables, or against numbers of the text itself."""
    records = read_records(TEXT_NUMBERS, folder)
    for r in records:
        if r["quantity"] == "value" and not r["table"]:
            continue
        what = ", ".join(r[n] for n in ("group", "row", "versus", "column") if r[n])
        recomputed = list(_recomputed(r, cells, records))
        if not recomputed and r["quantity"] != "at least":
            raise _dangling(TEXT_NUMBERS.file, r)
        for value, place in recomputed:
            yield comparisons.equal(f"{r['quantity']} in the text", what, Printed.read(r["value"]),
                        comparisons.place_of(r), value, place)


def _recomputed(r: dict, cells: list[comparisons.Cell],
                records: list[dict]) -> Iterator[comparisons.Value]:
    """The number of a sentence, from each place that lets one recompute it."""
    rows = _sources(r, r["row"], cells, records)
    if r["quantity"] == "value":
        yield from rows.values()
    elif r["quantity"] in ("gain", "relative gain"):
        others = _sources(r, r["versus"], cells, records)
        for key in (key for key in rows if key in others):
            (a, place_a), (b, place_b) = rows[key], others[key]
            relative = r["quantity"] == "relative gain"
            yield (a / b - 1) * 100 if relative else a - b, f"{place_a} against {place_b}"


def _sources(r: dict, row: str, cells: list[comparisons.Cell], records: list[dict]) -> dict[object,
                                                                                            comparisons.Value]:
    """Where the number of `row` stands, by table (or by paper, if the text has it)."""
    if not r["table"]:
        return {s["source"]: (Printed.read(s["value"]), comparisons.place_of(s)) for s in records
                if (s["quantity"], s["group"], s["row"], s["column"], s["source"])
                == ("value", r["group"], row, r["column"], r["source"])}
    named = [c for c in cells if (c.source, c.table, c.group, c.row, c.column)
             == (r["source"], int(r["table"]), r["group"], row, r["column"])]
    alike = [c for c in cells if c in named or
             any(c.quantity and c.quantity == n.quantity for n in named)]
    return {(c.source, c.table): (c.number, c.place) for c in alike}


def statements(cells: list[comparisons.Cell], folder: Path) -> Iterator[comparisons.Comparison]:
    """Sentences that say that a row is above others: in every column, or in most comparisons."""
    for r in read_records(STATEMENTS, folder):
        members = [c for c in cells if (c.source, c.table) == (r["source"], int(r["table"]))
                   and r["group"] in ("*", c.model)]
        versus = "all others" if r["versus"] == "*" else r["versus"]
        if not {r["row"], r["versus"]} <= {"*", *(c.row for c in members)}:
            raise _dangling(STATEMENTS.file, r)
        than = f"{versus} ({comparisons.place_of(r)})"
        found = [comparisons.above("statement", f"{model}, {column}: {r['row']} above {than}",
                       *value, *max(others, key=lambda other: other[0].value))
                 for (model, column), (value, others) in _comparisons(r, members).items()]
        if r["how_often"] == "every":
            yield from found
        else:
            share = Fraction(sum(f.agrees for f in found), len(found))
            yield comparisons.above("statement",
                                    f"share of comparisons: {r['row']} at or above {than}",
                        Printed.exact(share), f"{r['source']} Table {r['table']}",
                        Printed.exact(Fraction(1, 2)), "most: more than half")


def _dangling(file: str, r: dict) -> UserError:
    where = f"Table {r['table']}" if r["table"] else "the text"
    return UserError(f"{file} refers to {r['group']} / {r['row']} / {r['versus']} / {r['column']} "
                     f"in {where} of source {r['source']!r}, which the transcription lacks.")


def _comparisons(r: dict, members: list[comparisons.Cell]) -> dict[tuple,
                                                                   tuple[comparisons.Value,
                                                                         list[comparisons.Value]]]:
    """Per model and column: the value of the row in question, and those it is compared with."""
    compared = {}
    for model, cells in comparisons.by(lambda c: c.model, members).items():
        rows = {name: _columns(row) for name, row in comparisons.by(lambda c: c.row, cells).items()}
        others = [name for name in rows if name != r["row"] and r["versus"] in ("*", name)]
        for column, value in rows[r["row"]].items():
            if r["column"] in ("*", column):
                compared[model, column] = value, [rows[name][column] for name in others]
    return compared


def _columns(row: list[comparisons.Cell]) -> dict[str, comparisons.Value]:
    """Columns of a row; the average over tasks is computed where the table leaves it out."""
    columns = {c.column: (c.number, c.place) for c in row}
    if set(comparisons.TASKS) <= set(columns) and "Average" not in columns:
        place = f"{row[0].place.rsplit(' / ', 1)[0]} / mean of the seven tasks"
        columns["Average"] = mean([columns[task][0] for task in comparisons.TASKS]), place
    return columns


def gain_orders(cells: list[comparisons.Cell], folder: Path) -> Iterator[comparisons.Comparison]:
    """Sentences that rank models by what RetMask gains: mean gain over the lengths both have."""
    for r in read_records(GAIN_ORDERS, folder):
        gains = [_gains(cells, r["source"], r[name]) for name in ("larger", "smaller")]
        lengths = [length for length in gains[0] if length in gains[1]]
        (a, b) = (mean([g[length] for length in lengths]) for g in gains)
        place = "{} " + f"{r['source']}: mean gain over {', '.join(lengths)}"
        yield comparisons.above("order of gains", f"{r['larger']} gains more than {r['smaller']} "
                    f"({comparisons.place_of(r)})", a, place.format(r["larger"]), b,
                    place.format(r["smaller"]))


def _gains(cells: list[comparisons.Cell], source: str, model: str) -> dict[str, Printed]:
    """RetMask against before training, by length (judge GPT-4o, the paper's main tables)."""
    scores = {}
    for c in cells:
        q = c.quantity
        if (q and c.source == source and (q.model, q.task, q.judge) == (model, "Average", "GPT-4o")
                and q.data in ("", "LMSYS-Chat-1M")):
            scores.setdefault((q.method, q.length), c.number)
    return {length: scores["RetMask", length] - scores["Before", length]
            for method, length in scores if method == "Before"}


def audit(folder: Path = PAPER) -> pd.DataFrame:
    """Compare the paper's numbers with each other.

    Every line comes from a general rule that is run over the transcribed data; no disagreement is
    typed in. Numbers disagree if rounding for print cannot explain their difference.

    Parameters
    ----------
    folder : Path
        Where the transcription is, by default `data/paper/`.

    Returns
    -------
    DataFrame
        One row per comparison, those that agree included: `check`, `what`, `value_a`, `place_a`,
        `value_b`, `place_b`, `tolerance`, `agrees`, `difference` (see
        `rmutils.paper.comparisons.Comparison`).

    Raises
    ------
    UserError
        A file of the transcription is missing or malformed.
    """
    cells = comparisons.load_cells(folder)
    numbers = head_checks.HeadNumbers(folder)
    findings = [
        *task_means(cells),
        *same_cell(cells),
        *bold_is_best(cells, folder),
        *captions(cells, folder),
        *quoted_numbers(cells, folder),
        *statements(cells, folder),
        *gain_orders(cells, folder),
        *repeated_numbers(folder),
        *repeated_facts(folder),
        *unique_failures(folder),
        *head_checks.score_bins(numbers),
        *head_checks.masked_shares(numbers),
        *head_checks.mean_gains(numbers),
        *head_checks.published_scores(numbers),
    ]
    return pd.DataFrame(findings, columns=[field.name for field in fields(comparisons.Comparison)])
