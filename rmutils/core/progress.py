"""Progress with time left: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

QUIET_SECONDS = 30
"""Without a terminal (a log file, a notebook): at most one line in so many seconds."""


@contextmanager
def progress_bar(
    description: str, total: float, *, unit: str = "cases", done: float = 0
) -> Iterator[Callable[[float], None]]:
    """Show progress on stderr; yields a function that advances it.

    Bars within a bar stand below it, in the same display.

    Parameters
    ----------
    description : str
        What is going on.
    total : float
        Amount of work, in `unit`.
    unit : str
        `"bytes"` is shown as sizes, anything else as a count.
    done : float
        Work done by an earlier run. It counts as done, but not in the estimate of time left.
    """
    if sys.stderr.isatty():
        with _display() as display:
            task = display.add_task(description, total=total, unit=unit)
            display.update(task, completed=done)
            yield lambda amount: display.advance(task, amount)
        return
    started = last = time.monotonic()
    now_done = 0.0

    def advance(amount: float) -> None:
        nonlocal last, now_done
        now_done += amount
        now = time.monotonic()
        if now_done and now - last >= QUIET_SECONDS:
            last = now
            left = (total - done - now_done) * (now - started) / now_done
            print(f"{description}: {done + now_done:.0f}/{total:.0f} {unit}, "
                  f"{left / 60:.1f} min left", file=sys.stderr, flush=True)

    yield advance


class _Amount(ProgressColumn):
    """Bytes as sizes, anything else as a count."""

    bytes, count = DownloadColumn(), MofNCompleteColumn()

    def render(self, task: Task) -> Text:
        return (self.bytes if task.fields["unit"] == "bytes" else self.count).render(task)


_shown: Progress | None = None
"""The display on the terminal, of which there can be one only."""


@contextmanager
def _display() -> Iterator[Progress]:
    global _shown
    if _shown:
        yield _shown
        return
    columns = (TextColumn("{task.description}"), BarColumn(), _Amount(), TimeElapsedColumn(),
               TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as _shown:
        try:
            yield _shown
        finally:
            _shown = None
