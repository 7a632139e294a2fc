"""Checks of the tables against themselves and against each other.

The audit: everything that the paper lets one recompute.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pandas as pd

from rmutils.paper import head_checks, text_checks
from rmutils.paper.findings import TASKS, Cell, Finding, by, equal, load_cells, same_text
from rmutils.paper.tables import BOLD, PAPER, TABLE_INFO, mean, read_records


def same_cell(cells: list[Cell]) -> Iterator[Finding]:
    """The same quantity in two tables: each later place against the first."""
    for quantity, places in by(lambda cell: cell.quantity, cells).items():
        if quantity is None:
            continue
        first, *later = places
        for cell in later:
            check = "same cell" if cell.source == first.source else "English against Japanese"
            yield equal(check, str(quantity), first.number, first.place, cell.number, cell.place)


def task_means(cells: list[Cell]) -> Iterator[Finding]:
    """Mean of the seven tasks of a row against the average, wherever the same paper prints it.

    Where it does not (the Japanese Table 7), against the other paper.
    """
    quantities = by(lambda cell: cell.quantity, cells)
    rows = by(lambda cell: (cell.source, cell.table, cell.group, cell.row), cells)
    for (source, table, group, row), members in rows.items():
        tasks = {cell.column: cell for cell in members}
        if not set(TASKS) <= set(tasks):
            continue
        average = mean([tasks[task].number for task in TASKS])
        quantity = tasks["Summ"].quantity._replace(task="Average")
        place = f"{source} Table {table}: {group} / {row} / mean of the seven tasks"
        printed = quantities.get(quantity, [])
        for cell in [c for c in printed if c.source == source] or printed:
            yield equal("mean of tasks", str(quantity), average, place, cell.number, cell.place)


def bold_is_best(cells: list[Cell], folder: Path) -> Iterator[Finding]:
    """In each column of a table with bold numbers, those and only those are the highest."""
    bold = {(r["source"], int(r["table"]), r["group"], r["row"], r["column"])
            for r in read_records(BOLD, folder)}
    tables = {(source, table) for source, table, *_ in bold}
    columns = by(lambda cell: (cell.source, cell.table, cell.model, cell.column),
                 (cell for cell in cells if (cell.source, cell.table) in tables))
    for (source, table, model, column), members in columns.items():
        highest = max(cell.number.value for cell in members)
        best = [cell for cell in members if cell.number.value == highest]
        marked = [cell for cell in members
                  if (cell.source, cell.table, cell.group, cell.row, cell.column) in bold]
        lowest = min((float(cell.number) for cell in marked), default=float("nan"))
        yield Finding("bold is best", f"{model}, {column}: highest (a), bold (b)",
                      float(highest), _places(best), lowest,
                      _places(marked) or f"{source} Table {table}: nothing is bold",
                      0.0, best == marked, float(highest) - lowest)


def _places(cells: list[Cell]) -> str:
    return " and ".join(cell.place for cell in cells)


def captions(cells: list[Cell], folder: Path) -> Iterator[Finding]:
    """Input lengths that a caption lists against those that its table has."""
    columns = by(lambda cell: (cell.source, str(cell.table)), cells)
    for r in read_records(TABLE_INFO, folder):
        if r["columns_are"] == "lengths" and r["caption_lengths"]:
            place = f"{r['source']} Table {r['table']}"
            found = dict.fromkeys(cell.column for cell in columns[r["source"], r["table"]])
            yield same_text("caption", "input lengths", r["caption_lengths"], f"{place}: caption",
                            " ".join(found), f"{place}: columns")


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
        `rmutils.paper.findings.Finding`).

    Raises
    ------
    UserError
        A file of the transcription is missing or malformed.
    """
    cells = load_cells(folder)
    numbers = head_checks.HeadNumbers(folder)
    findings = [
        *task_means(cells),
        *same_cell(cells),
        *bold_is_best(cells, folder),
        *captions(cells, folder),
        *text_checks.quoted_numbers(cells, folder),
        *text_checks.statements(cells, folder),
        *text_checks.gain_orders(cells, folder),
        *text_checks.repeated_numbers(folder),
        *text_checks.repeated_facts(folder),
        *text_checks.unique_failures(folder),
        *head_checks.score_bins(numbers),
        *head_checks.masked_shares(numbers),
        *head_checks.mean_gains(numbers),
        *head_checks.published_scores(numbers),
    ]
    return pd.DataFrame(findings, columns=[field.name for field in fields(Finding)])
