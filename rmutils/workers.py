"""Work that several processes share by index, with the results of one.

What one process would compute together is given to one of them whole, and each computes in one
thread, as one process does (`rmutils.threads.one_thread`): batches and numbers of threads change
the last bits of a number, and with them now and then a token.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import torch

from rmutils.errors import UserError
from rmutils.journal import Journal, worker_part
from rmutils.progress import progress_bar

PAUSE = 0.5
"""Seconds between two looks at what the workers have written."""
Work = Callable[[Journal, slice, Callable[[float], None]], Any]
"""Does a share of the work: every n-th of its parts. Takes the journal for the results, which says
what is done already, the share, and what to call with each amount that is done."""


def side_by_side(
    work: Work, journal: Path, workers: int, doing: str, total: int, *, unit: str = "answers"
) -> list[Any]:
    """Fill a journal; what `work` returned, share by share.

    Parameters
    ----------
    work : callable
        Is sent to each process: a function of a module, or a `partial` of one.
    journal : Path
        What is there already, also of workers that were stopped, is not done again.
    workers : int
        Processes. On GPUs each takes the next one.
    doing : str
        For the progress bar.
    total : int
        Results in the end.

    Raises
    ------
    UserError
        As of `work`; or a worker was stopped.
    """
    kept = Journal(journal)
    parts = [worker_part(journal, k) for k in range(workers)]
    seen = 0
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads can hang
    with progress_bar(doing, total, unit=unit, done=len(kept)) as advance, \
            ProcessPoolExecutor(workers, context) as pool:
        jobs = [pool.submit(_share, work, dict(kept), part, slice(k, None, workers))
                for k, part in enumerate(parts)]
        while wait(jobs, PAUSE).not_done:
            now = sum(part.read_bytes().count(b"\n") for part in parts if part.exists())
            advance(now - seen)
            seen = now
    Journal(journal)  # takes in what they have written, also if one was stopped
    try:
        return [job.result() for job in jobs]
    except BrokenProcessPool as error:
        raise UserError(f"{doing}: a worker was stopped, perhaps for want of memory. What has been "
                        "answered is kept: the same command goes on; --workers 1 needs the least "
                        "memory.") from error


def default_workers() -> int:
    """One for each GPU; without any, one for each core, but four at most: memory grows with each.
    """
    return torch.cuda.device_count() or min(4, os.cpu_count() or 1)


def _share(work: Work, known: dict[str, Any], part: Path, share: slice) -> Any:
    torch.set_num_threads(1)
    if torch.cuda.is_available():
        torch.cuda.set_device(share.start % torch.cuda.device_count())
    parent, own = os.getppid(), Journal(part)
    own.data |= known

    def done(amount: float) -> None:
        if os.getppid() != parent:  # the command was killed: nobody would gather the results
            os._exit(1)

    return work(own, share, done)
