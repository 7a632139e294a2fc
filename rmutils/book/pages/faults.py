"""Faults that the tests have injected, and what came of it, as they have written it down."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

from rmutils.book.pages import FAULTS
from rmutils.book.pages.items import literal

COUNTS = ("tried", "kept", "lost")


def in_all(book: Path) -> str:
    """How many faults of how many kinds were injected, and whether anything was lost."""
    rows = [row for run in _runs() for row in run["faults"]]
    tried, kept, lost = (sum(row[name] for row in rows) for name in COUNTS)
    kinds = len({row["kind"] for row in rows})
    end = "None was lost." if not lost else f"**{lost:,} were lost:** " + "; ".join(
        literal(f"{row['kind']}: {row['what']}") for row in rows if row["lost"]) + "."
    return (f"{tried:,} faults of {kinds} kinds were injected, by {len({_test(r) for r in rows})} "
            f"tests; {kept:,} were kept. {end}")


def faults(book: Path) -> str:
    """All faults by kind, those that were tried most often first; and how the table was made."""
    runs = _runs()
    rows = sorted((row for run in runs for row in run["faults"]), key=lambda row: row["kind"])
    kinds = [(kind, [*group]) for kind, group in groupby(rows, lambda row: row["kind"])]
    parts = []
    for kind, group in sorted(kinds, key=lambda item: -sum(r["tried"] for r in item[1])):
        parts += [f"## {literal(kind[0].upper() + kind[1:])}", "",
                  "```{table}", ":class: rm-counts", ":width: 100%", ":widths: 73 9 9 9", "",
                  "| fault, and the test | tried | kept | lost |", "|:--|--:|--:|--:|",
                  *map(_line, group), "```", ""]
    parts += ["## How this was made", ""]
    for run in runs:
        made = run["environment"]
        packages = ", ".join(f"{name} {made['packages'][name]}" for name in ("torch", "trl")
                             if name in made["packages"])
        parts += [f"- {len(run['faults'])} rows: `{run['command']}`, {made['created'][:10]}, "
                  f"commit {made['commit']}, {literal(made['hardware'])}, Python "
                  f"{made['python']}, {packages}"]
    return "\n".join(parts)


def _runs() -> list[dict[str, Any]]:
    return json.loads(FAULTS.read_text(encoding="utf-8"))["runs"]


def _line(row: dict[str, Any]) -> str:
    counts = " | ".join(f"{row[name]:,}" for name in COUNTS)
    return f"| {literal(row['what'])}<br>`{_test(row)}` | {counts} |"


def _test(row: dict[str, Any]) -> str:
    return row["test"].removeprefix("tests/")
