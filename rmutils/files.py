"""Files: their hash, one process at a time, and JSON that others wrote."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from rmutils.errors import UserError


def parse_json(text: str) -> Any:
    """JSON from elsewhere; `ValueError` for all that is none, also if it is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def sha256(path: Path) -> str:
    """SHA-256 (hex) of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def one_process(lock_file: Path, doing: str) -> Iterator[None]:
    """Hold a lock; a second process says what it waits for, and waits.

    The lock ends with the process that holds it, also after a kill.

    Raises
    ------
    UserError
        The lock's folder, which is in the user's cache, cannot be written.
    """
    lock = FileLock(lock_file)
    try:
        lock_file.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        print(f"Another process is {doing}; waiting for it.", file=sys.stderr, flush=True)
        lock.acquire()
    except OSError as error:
        raise UserError(
            f"{doing}: {lock_file.parent} cannot be written ({error.strerror}). Name a folder of "
            "your own: `export RMUTILS_CACHE=~/rmutils`. A folder that is only to be read belongs "
            "in RMUTILS_SHARED_CACHE.") from error
    try:
        yield
    finally:
        lock.release()
