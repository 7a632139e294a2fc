"""Where memory runs out in a batch, half of it is tried, and so on; the user is told."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from rmutils.errors import UserError

NO_MEMORY = "can't allocate memory"
"""In the message of the error that PyTorch raises on a CPU; accelerators have a type for it."""


def halve(error: RuntimeError, at_once: int, what: str) -> int:
    """After an error in a batch: how many to take at once from now on.

    Parameters
    ----------
    at_once : int
        Items of the batch.
    what : str
        One of them in a word.

    Raises
    ------
    RuntimeError
        The error itself, if it is another one.
    UserError
        There was only one item.
    """
    if not (isinstance(error, torch.OutOfMemoryError) or NO_MEMORY in str(error)):
        raise error
    if at_once == 1:
        raise UserError(
            f"out of memory with a single {what}. What is done so far is kept. End other programs, "
            "or choose shorter texts or a smaller model: `rmutils doctor` says what this machine "
            "has.") from error
    print(f"Out of memory with {at_once} {what}s at once. Going on with {at_once // 2}.",
          file=sys.stderr, flush=True)
    return at_once // 2


def in_batches(
    items: Sequence, size: int, act: Callable[[Sequence], Any], what: str
) -> Iterator[tuple[Sequence, Any]]:
    """What `act` makes of so many items at once; of fewer from where memory does not suffice.

    Yields
    ------
    sequence, object
        Items in their order, and what was made of them.

    Raises
    ------
    UserError
        Memory does not suffice for a single item.
    """
    start = 0
    while start < len(items):
        batch = items[start : start + size]
        try:
            made = act(batch)
        except RuntimeError as error:
            size = halve(error, len(batch), what)
        else:
            yield batch, made
            start += len(batch)
