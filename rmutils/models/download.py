"""Downloads that go on where they stopped, several at a time, in one progress bar."""

from __future__ import annotations

import http.client
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rmutils.core.errors import UserError
from rmutils.core.files import sha256
from rmutils.core.journal import progress_bar

CHUNK = 1 << 20
AT_ONCE = 4  # downloads side by side
T = TypeVar("T")


class _Stopped(Exception):
    """Another download failed."""


@dataclass
class Fetching:
    """What is fetched, for messages; its progress; and whether it is to stop."""

    name: str  # the model's
    again: str  # the command that goes on
    advance: Callable[[float], object] = lambda amount: None
    stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def progress(self, total: int, done: int) -> Iterator[None]:
        """Show one bar over all bytes, whichever thread brings them."""
        lock = threading.Lock()
        with progress_bar(f"fetching {self.name}", total, unit="bytes", done=done) as advance:
            def one_at_a_time(amount: float) -> None:
                with lock:
                    advance(amount)

            self.advance = one_at_a_time
            yield

    def side_by_side(self, bring: Callable[[T], None], what: Iterable[T]) -> None:
        """Bring several things at once. If one fails, the others stop, and its error is raised."""
        def one(thing: T) -> None:
            try:
                if not self.stop.is_set():
                    bring(thing)
            except BaseException:
                self.stop.set()
                raise

        with ThreadPoolExecutor(AT_ONCE) as pool:
            jobs = [pool.submit(one, thing) for thing in what]
            try:
                errors = [error for job in jobs if (error := job.exception())]
            except BaseException:  # Ctrl-C
                self.stop.set()
                raise
        for error in sorted(errors, key=lambda error: isinstance(error, _Stopped)):
            raise error

    def download(self, url: str, partial: Path, size: int, part: str = "") -> None:
        """Download to `partial`, going on after the bytes that are already there."""
        what = f"fetching {self.name}" + (f" ({part})" if part else "")
        have = partial.stat().st_size if partial.exists() else 0
        request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                if have and getattr(response, "status", None) != 206:  # it is all sent again
                    self.advance(-min(have, size))
                    have = 0
                total = have + int(response.headers.get("Content-Length") or 0)
                with partial.open("ab" if have else "wb") as out:
                    while block := response.read(CHUNK):
                        if self.stop.is_set():
                            raise _Stopped
                        out.write(block)
                        self.advance(len(block) * (size / total if total else 1))
            if partial.stat().st_size < total:
                raise ConnectionError(f"{partial.stat().st_size} of {total} bytes came")
        except urllib.error.HTTPError as error:
            if error.code == 416:  # "range not satisfiable": the partial file is whole already
                return
            raise UserError(f"{what}: the server answered {error.code} {error.reason}. "
                            f"Try again: `{self.again}`.") from error
        except (OSError, http.client.HTTPException) as error:
            raise UserError(f"{what}: the connection broke ({error}). What came so far is "
                            f"kept; go on with `{self.again}`.") from error


def check_sha256(path: Path, expected: str) -> None:
    """Raise `UserError` if the file's hash is not the expected one."""
    refuse_other(path.name, sha256(path), expected)


def refuse_other(name: str, found: str, expected: str) -> None:
    """Raise `UserError` if a hash is not the expected one."""
    if found != expected:
        raise UserError(f"{name}: wrong hash, so it is not used. Expected SHA-256 {expected}, "
                        f"found {found}. Fetch it again.")
