"""Processes beside a test, waiting for what they do, and timing on machines with other work."""

import multiprocessing
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

PATIENCE = 900
"""Seconds after which something hangs: only that, however slow and busy the machine is."""


def forked(function: Callable[..., object], *given: object) -> multiprocessing.Process:
    """A process beside this one that has all that is imported here, which takes a new one seconds.
    """
    process = multiprocessing.get_context("fork").Process(target=function, args=given)
    process.start()
    return process


def until(found: Callable[[], Found]) -> Found:
    """What `found` says as soon as that is true."""
    end = time.monotonic() + PATIENCE
    while not (value := found()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
    return value


def least(measure: Callable[[], float], wanted: float, tries: int = 5) -> float:
    """The least of some tries, as other work on a machine adds to what a piece of work takes.

    The first try below `wanted` is the last.
    """
    found = measure()
    for _ in range(tries - 1):
        if found < wanted:
            break
        found = min(found, measure())
    return found
