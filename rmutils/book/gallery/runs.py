"""Notebooks that were run with other parameters: what is on record of each."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import nbformat

from rmutils.parameters import as_word

FOLDER = "gallery"
"""Where the pages of runs stand in the book."""

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
"""Names that runs may have: they become names of files and parts of addresses."""


@dataclass(frozen=True)
class Run:
    """A notebook that was run to its end, and the chapter of that name if the book has it."""

    file: Path
    chapter: Path

    @property
    def notebook(self) -> str:
        return self.file.parent.name

    @property
    def name(self) -> str:
        return self.file.stem

    @property
    def page(self) -> str:
        """Its page in the book, without an ending."""
        return f"{FOLDER}/{self.notebook}/{self.name}"

    @cached_property
    def executed(self) -> nbformat.NotebookNode:
        return nbformat.read(self.file, as_version=4)

    @cached_property
    def default(self) -> nbformat.NotebookNode | None:
        """The executed chapter; None where the book no longer has such a notebook."""
        return nbformat.read(self.chapter, as_version=4) if self.chapter.is_file() else None

    @property
    def record(self) -> dict[str, Any]:
        return self.executed.metadata["rmutils"]

    @property
    def usual(self) -> dict[str, Any]:
        """The chapter's parameters."""
        record = self.default.metadata.get("rmutils", {}) if self.default else {}
        return record.get("parameters", {})

    @property
    def changed(self) -> dict[str, Any]:
        """Parameters that are not those of the chapter, or without one: those that were given."""
        given = self.record["parameters"]
        if not self.default:
            return {name: given[name] for name in self.record["changed"]}
        return {k: v for k, v in given.items() if k not in self.usual or self.usual[k] != v}

    @property
    def command(self) -> str:
        """The command that makes the run again."""
        given = self.record["parameters"]
        pairs = [word for k in self.record["changed"] for word in ("-p", k, as_word(given[k]))]
        return shlex.join(["rmutils", "run", self.notebook, *pairs, "--name", self.name])


def files(root: Path) -> list[Path]:
    """Notebooks that a run has finished; not what runs left that failed or were interrupted."""
    found = (root / "book" / "runs").glob("*/*.ipynb")
    return sorted(f for f in found if NAME.fullmatch(f.stem) and NAME.fullmatch(f.parent.name)
                  and _whole(f))


def _whole(file: Path) -> bool:
    try:
        record = json.loads(file.read_text(encoding="utf-8"))["metadata"]["rmutils"]
        return {"parameters", "changed", "started", "seconds"} <= set(record)
    except (OSError, ValueError, KeyError, TypeError):
        return False
