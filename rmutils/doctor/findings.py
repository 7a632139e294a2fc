"""One thing that was looked at, and asking a command."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: `fine`, `note` (the book does without) or `wrong`."""

    what: str
    state: str
    found: str
    mend: str = ""


def ask(command: list[str], seconds: float, folder: Path | None = None) -> str:
    """What a command says on both streams; a reason where it does not even start."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=seconds, cwd=folder, errors="replace")
    except subprocess.TimeoutExpired:
        return f"no answer within {seconds:.0f} s"
    except OSError as error:
        return str(error)
    return done.stdout


def last(told: str) -> str:
    """The line of an answer that says why."""
    return (told.strip().splitlines() or ["it says nothing"])[-1]
