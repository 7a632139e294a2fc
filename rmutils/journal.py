"""What a long run has done so far, so that it can go on after a kill."""

from __future__ import annotations

import json
import os
from collections import UserDict
from contextlib import suppress
from pathlib import Path
from typing import Any

from rmutils.files import parse_json


class Journal(UserDict):
    """Results by name. Each is written to a file when it is set, as a line of JSON.

    Parameters
    ----------
    path : Path or None
        What is there already is read; a line that was being written when a run stopped, or that is
        damaged, is left out. What workers have written beside it (`worker_part`) is moved into it.
        None: results are kept in memory only.
    """

    def __init__(self, path: Path | None):
        super().__init__()
        self.path = path
        if path is None:
            return
        if path.exists():
            self._read(path)
        for part in sorted(path.parent.glob(worker_part(path, "*").name)):
            for name, result in Journal(part).items():
                self[name] = result
            part.unlink()

    def _read(self, path: Path) -> None:
        written = path.read_bytes()
        if not written.endswith(b"\n"):
            os.truncate(path, written.rfind(b"\n") + 1)  # in place: what is whole stays on the disk
        for line in written.decode("utf-8", "replace").split("\n")[:-1]:
            with suppress(ValueError, TypeError):  # damaged on the disk: it is done again
                name, result = parse_json(line)
                self.data[name] = result

    def __setitem__(self, name: str, result: Any) -> None:
        super().__setitem__(name, result)
        if self.path:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([name, result]) + "\n")


def worker_part(path: Path, number: int | str) -> Path:
    """Where a worker keeps its part of a journal (`rmutils.workers`)."""
    return Path(f"{path}.worker-{number}")
