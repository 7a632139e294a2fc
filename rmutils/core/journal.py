"""Long runs: a journal of what is done, so that a killed one goes on; processes; progress."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
import zlib
from collections import UserDict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from rmutils.core.config import DEVICE, digest
from rmutils.core.errors import UserError
from rmutils.core.registry import import_all, outside_modules
from rmutils.core.validation import parse_json


class Journal(UserDict[str, Any]):
    """Results by name, each written to a file as it is set."""

    def __init__(self, path: Path | None, of: Any = None):
        super().__init__()
        self.path, self.of = path, None if of is None else digest(of)[:16]
        if path is None:
            return
        if path.exists():
            self._read(path)
        for part in sorted(path.parent.glob(worker_part(path, "*").name)):
            for name, result in Journal(part, of).items():
                self[name] = result
            part.unlink()

    def _read(self, path: Path) -> None:
        from rmutils.core.files import plain  # not above: it takes pandas with it

        written = plain(path).read_bytes()
        if not written.endswith(b"\n"):
            os.truncate(path, written.rfind(b"\n") + 1)  # in place: what is whole stays on the disk
        for line in written.decode(errors="replace").split("\n")[:-1]:
            text, *rest = line.split("\t", 2)  # no JSON holds a bare tab
            checksum, of = (*rest, None, None)[:2]
            if self.of in (None, of) and checksum in (None, _checksum(text, of)):
                with suppress(ValueError, TypeError):
                    name, result = parse_json(text)
                    self.data[name] = result

    def __setitem__(self, name: str, result: Any) -> None:
        super().__setitem__(name, result)
        if self.path:
            text = json.dumps([name, result])
            with self.path.open("ab") as file:
                line = [text, _checksum(text, self.of), *([self.of] if self.of else [])]
                file.write(("\t".join(line) + "\n").encode())


def _checksum(*parts: str | None) -> str:
    return f"{zlib.crc32(' '.join(filter(None, parts)).encode()):08x}"


def worker_part(path: Path, number: int | str) -> Path:
    """Return the file in which a worker keeps its part of a journal."""
    return Path(f"{path}.worker-{number}")


PAUSE = 0.5  # seconds between two looks at what the workers have written
Work = Callable[[Journal, slice, Callable[[float], object]], Any]
"""Does a share of the work: every n-th of its parts. Takes the journal for the results, which says
what is done already, the share, and what to call with each amount that is done."""


def side_by_side(work: Work, journal: Path, workers: int, doing: str, total: int, *, of: Any,
                 unit: str = "answers") -> list[Any]:
    """Fill a journal by several processes, and return what `work` returned, share by share."""
    kept = Journal(journal, of)
    parts = [worker_part(journal, k) for k in range(workers)]
    seen = 0
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads can hang
    with progress_bar(doing, total, unit=unit, done=len(kept)) as advance, \
            ProcessPoolExecutor(workers, context, _begin, (outside_modules(),)) as pool:
        with _deaf_to_ctrl_c():  # the workers are, too: one process tells of it, and stops them
            jobs = [pool.submit(_share, work, dict(kept), part, of, slice(k, None, workers))
                    for k, part in enumerate(parts)]
        try:
            while wait(jobs, PAUSE).not_done:
                now = sum(part.read_bytes().count(b"\n") for part in parts if part.exists())
                advance(now - seen)
                seen = now
        except KeyboardInterrupt:
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise
    Journal(journal, of)  # takes in what they have written, also if one was stopped
    try:
        return [job.result() for job in jobs]
    except BrokenProcessPool as error:
        raise UserError(f"{doing}: a worker was stopped, perhaps because memory ran out. What has "
                        "been answered is kept: the same command goes on; --workers 1 needs the "
                        "least memory.") from error


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Ignore Ctrl-C, as do the processes that are started meanwhile, for as long as they live."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield  # no signal arrives here, or not in Python
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _begin(outside: list[str]) -> None:
    """Prepare a worker: import what others registered, and end when the command is killed."""
    command = multiprocessing.parent_process()
    assert command is not None

    def end() -> None:
        command.join()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()
    import_all(outside)


def default_workers() -> int:
    """Return one for each GPU; without any, one for each core, four at most: each takes memory."""
    device = os.environ.get(DEVICE) or "cuda"
    gpus = torch.cuda.device_count() if device == "cuda" else int(device.startswith("cuda"))
    return gpus or min(4, os.cpu_count() or 1)


def _share(work: Work, known: dict[str, Any], part: Path, of: Any, share: slice) -> Any:
    torch.set_num_threads(1)
    if torch.cuda.is_available():
        torch.cuda.set_device(share.start % torch.cuda.device_count())
    own = Journal(part, of)
    own.data = known
    return work(own, share, lambda amount: None)  # the command counts the lines of the journals


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute in one thread; on exit in as many as before, also after an error."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


QUIET_SECONDS = 30
"""Without a terminal (a log file, a notebook): at most one line in so many seconds."""


@contextmanager
def progress_bar(description: str, total: float, *, unit: str = "cases",
                 done: float = 0) -> Iterator[Callable[[float], object]]:
    """Show progress on stderr, a bar within a bar below it; yields a function that advances it."""
    lines: dict[str, Any] = {} if sys.stderr.isatty() else {
        "mininterval": QUIET_SECONDS, "delay": QUIET_SECONDS, "maxinterval": float("inf"),
        "bar_format": "{desc}: {n_fmt}/{total_fmt}{unit}, {remaining} left\n"}
    sizes = unit == "bytes"
    with tqdm(desc=description, total=total, initial=done, unit="B" if sizes else f" {unit}",
              unit_scale=sizes, leave=None, dynamic_ncols=True, file=sys.stderr, **lines) as bar:
        yield bar.update
