"""What a long run has done so far, so that it can go on after a kill."""

from __future__ import annotations

import json
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
        damaged, is left out. What workers have written beside it (`<path>.<number>`, see
        `rmutils.workers`) is moved into it. None: results are kept in memory only.
    """

    def __init__(self, path: Path | None):
        super().__init__()
        self.path = path
        if path is None:
            return
        if path.exists():
            self._read(path)
        for part in sorted(path.parent.glob(f"{path.name}.[0-9]*")):
            for name, result in Journal(part).items():
                self[name] = result
            part.unlink()

    def _read(self, path: Path) -> None:
        *lines, rest = path.read_text(encoding="utf-8", errors="replace").split("\n")
        if rest:
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        for line in lines:
            with suppress(ValueError, TypeError):  # damaged on the disk: it is done again
                name, result = parse_json(line)
                self.data[name] = result

    def __setitem__(self, name: str, result: Any) -> None:
        super().__setitem__(name, result)
        if self.path:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([name, result]) + "\n")
