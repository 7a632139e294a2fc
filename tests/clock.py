"""Processes beside a test, and waiting for what they do."""

import multiprocessing
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

PATIENCE = 300
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
