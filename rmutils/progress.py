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
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

QUIET_SECONDS = 30
"""Without a terminal (a log file, a notebook): at most one line in so many seconds."""


@contextmanager
def progress_bar(
    description: str, total: float, *, unit: str = "cases", done: float = 0
) -> Iterator[Callable[[float], None]]:
    """Show progress on stderr; yields a function that advances it.

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
        amount = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
        columns = (TextColumn("{task.description}"), BarColumn(), amount,
                   TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(description, total=total, completed=done)
            yield lambda amount: bar.advance(task, amount)
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
