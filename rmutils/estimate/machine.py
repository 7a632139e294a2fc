"""How fast this machine is, beside the one on which the recorded runs were made."""

from __future__ import annotations

import json
import math
import time

import numpy as np

from rmutils import paths

TIMINGS = paths.DATA / "timings.json"
"""Recorded runs, and what `_work` took on their machine."""


def _work() -> None:
    """A fixed piece of work like that of a notebook: Python, products of matrices, functions."""
    sum(i * i for i in range(400_000))
    a = np.linspace(0, 1, 48 * 48).reshape(48, 48)
    for _ in range(400):
        a = np.tanh(a @ a / 48)  # from 65 x 65 on OpenBLAS takes several cores, and waits for them
    np.exp(np.linspace(0, 1, 400_000)).sum()


def work_seconds(clock=time.perf_counter) -> float:
    """Seconds of that piece, the median of nine."""
    taken = []
    for _ in range(9):
        started = clock()
        _work()
        taken.append(clock() - started)
    return float(np.median(taken))


def slowness(clock=time.perf_counter) -> float:
    """How many times as long a run takes on this machine just now as on that of the record.

    2 is half as fast. Other work on the machine counts. It is the square root of what the piece of
    work says, since a glance of a third of a second sees more of the ups and downs of a shared
    machine than a run feels. That is a rule of thumb, chosen after looking at runs of one machine;
    on one that is steadily several times slower, it says too little.
    """
    reference = json.loads(TIMINGS.read_text(encoding="utf-8"))["work_seconds"]
    return math.sqrt(work_seconds(clock) / reference)
