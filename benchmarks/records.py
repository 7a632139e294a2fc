"""A benchmark's results: rows in a JSON file that is written anew after each measurement."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from rmutils.book.chapters.speed import FOLDER
from rmutils.core.config import Config
from rmutils.core.environment import environment

SAME = "hardware", "packages", "python"
"""Conditions that must be the same for measurements to stand beside each other."""


class Results:
    """The rows of one benchmark.

    What is in the file already, measured with the same settings on the same machine with the same
    versions, is not measured again; what was measured otherwise is replaced.

    Parameters
    ----------
    name : str
        Of the benchmark, which is also the command's.
    settings : Config
    folder : Path
    """

    def __init__(self, name: str, settings: Config, folder: Path = FOLDER):
        self.path = folder / f"{name}.json"
        self.head = {"benchmark": name, "command": f"python -m benchmarks {name}",
                     "environment": environment(), "settings": settings.model_dump(mode="json")}
        self.rows: list[dict] = []
        if self.path.exists():
            known = json.loads(self.path.read_text(encoding="utf-8"))
            if _identity(known) == _identity(self.head):
                self.rows = known["rows"]
            else:
                print(f"{self.path.name} was made otherwise; it is made anew.")

    def find(self, **key: object) -> Iterator[dict]:
        """The rows that have these values."""
        return (row for row in self.rows if key.items() <= row.items())

    def add(self, row: dict) -> None:
        """Keep a row, and show it."""
        print({name: value for name, value in row.items()
               if name not in ("said", "copied", "scores")}, flush=True)
        self.rows.append(row)
        self.write()

    def write(self) -> None:
        """Write the file with all rows."""
        rows = ",\n".join(f"  {json.dumps(row)}" for row in self.rows)
        head = json.dumps(self.head, indent=1)
        temporary = self.path.with_suffix(".tmp")
        temporary.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(f'{head[:-2]},\n "rows": [\n{rows}\n ]\n}}\n', encoding="utf-8")
        os.replace(temporary, self.path)


def _identity(record: dict) -> list:
    return [record["settings"], *(record["environment"][name] for name in SAME)]
