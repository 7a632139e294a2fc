"""Answers of one model by several processes, each of which takes every n-th data set and length.

What a process answers together is what one process would answer together, so the answers are the
same, whatever the number of workers.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import torch

from rmutils.errors import UserError
from rmutils.evaluation.longcontext.run import answer, prompters_of
from rmutils.evaluation.longcontext.settings import EvaluateConfig
from rmutils.journal import Journal
from rmutils.progress import progress_bar
from rmutils.training.by_name import load_by_name

PAUSE = 0.5
"""Seconds between two looks at what the workers have written."""


def answer_side_by_side(
    model: str, config: EvaluateConfig, journal: Path, workers: int
) -> None:
    """Fill a journal with the answers of a model.

    Parameters
    ----------
    model : str
        As for `rmutils.training.by_name.load_by_name`.
    journal : Path
        As for `rmutils.evaluation.longcontext.evaluate`, which then only has to score. What is
        there already, also of workers that were stopped, is not asked again.
    workers : int
        Processes. Each has a model of its own and an even share of the processor's cores.

    Raises
    ------
    UserError
        As of `evaluate`; or a worker was stopped.
    """
    kept = Journal(journal)
    _gather(kept, journal.parent.glob(f"{journal.name}.*"))
    parts = [Path(f"{journal}.{k}") for k in range(workers)]
    total, seen = len(config.lengths) * len(config.datasets) * config.samples, 0
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads can hang
    with progress_bar(f"evaluation of {model}", total, unit="answers", done=len(kept)) as advance, \
            ProcessPoolExecutor(workers, context) as pool:
        jobs = [pool.submit(_work, model, config, journal, part, slice(k, None, workers))
                for k, part in enumerate(parts)]
        while wait(jobs, PAUSE).not_done:
            now = sum(part.read_bytes().count(b"\n") for part in parts if part.exists())
            advance(now - seen)
            seen = now
    _gather(kept, parts)
    try:
        for job in jobs:
            job.result()
    except BrokenProcessPool as error:
        raise UserError(f"a worker was stopped, perhaps for want of memory. What {model} has "
                        "answered is kept: the same command goes on; --workers 1 needs the least "
                        "memory.") from error


def default_workers() -> int:
    """One on a GPU, or on one core; else two: what a model writes token by token leaves a second
    core idle, and memory grows with each."""
    return 1 if torch.cuda.is_available() else min(2, os.cpu_count() or 1)


def _gather(kept: Journal, parts: Iterable[Path]) -> None:
    for part in parts:
        for name, text in Journal(part).items():
            kept[name] = text
        part.unlink(missing_ok=True)


def _work(
    model: str, config: EvaluateConfig, journal: Path, part: Path, share: slice
) -> None:
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // share.step))
    parent, lm, own = os.getppid(), load_by_name(model), Journal(part)
    own.data |= Journal(journal).data

    def done(amount: float) -> None:
        if os.getppid() != parent:  # the command was killed: nobody would gather the answers
            os._exit(1)

    for prompter in prompters_of(lm, config)[share]:
        answer(prompter, config, own, done)
