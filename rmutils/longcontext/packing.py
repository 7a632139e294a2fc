"""Documents put into training instances of one length: best fit, and cut wherever they end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rmutils.core.errors import UserError

WORD = 256
"""Bits that are looked through at once in the tree over free room."""


@dataclass(frozen=True)
class Packing:
    """Pieces of documents and the instances that they lie in.

    Attributes
    ----------
    capacity : int
        Tokens of an instance.
    document, start, length, instance : ndarray
        (pieces,): document of a piece, its first token there, its tokens, and the instance that it
        lies in. Pieces of an instance follow one another in the order in which they stand here.
    """

    capacity: int
    document: np.ndarray
    start: np.ndarray
    length: np.ndarray
    instance: np.ndarray

    @property
    def instances(self) -> int:
        """How many instances there are."""
        return int(self.instance.max()) + 1

    @property
    def padding(self) -> int:
        """Tokens of all instances that no document fills."""
        return self.instances * self.capacity - int(self.length.sum())

    @property
    def cut(self) -> int:
        """Documents that lie in more than one piece."""
        return int((np.unique(self.document, return_counts=True)[1] > 1).sum())


def concatenate_and_split(lengths: Sequence[int], capacity: int) -> Packing:
    """Lay all documents end to end and cut every `capacity` tokens.

    Parameters
    ----------
    lengths : sequence of int
        Tokens of each document.
    capacity : int
        Tokens of an instance.

    Raises
    ------
    UserError
        No documents, an empty one, or a capacity below 1.
    """
    lengths = _checked(lengths, capacity)
    ends = np.cumsum(lengths)
    borders = np.union1d(ends, np.arange(capacity, ends[-1], capacity))
    first = np.concatenate([[0], borders[:-1]])
    document = np.searchsorted(ends, first, side="right")
    return Packing(capacity, document, first - (ends - lengths)[document], borders - first,
                   first // capacity)


def best_fit(lengths: Sequence[int], capacity: int) -> Packing:
    """Best-fit packing: longest first, each into the instance that it leaves least room in.

    A document that is longer than an instance fills whole ones, and what is left of it is packed
    like the others. So no other document is cut. Time grows with the number of documents, memory
    too.

    Parameters
    ----------
    lengths, capacity
        As for `concatenate_and_split`.

    References
    ----------
    Ding et al. (2024), "Fewer Truncations Improve Language Modeling"; the Olmo 3 recipe, "Best-fit
    Packing".
    """
    lengths = _checked(lengths, capacity)
    whole, rest = np.divmod(lengths, capacity)
    full = np.repeat(np.arange(len(lengths)), whole)
    place = np.arange(len(full)) - np.repeat(np.cumsum(whole) - whole, whole)
    left = np.flatnonzero(rest)
    left = left[np.argsort(-rest[left], kind="stable")]
    instance = _fit(rest[left].tolist(), capacity)
    return Packing(
        capacity, np.concatenate([full, left]),
        np.concatenate([place, whole[left]]) * capacity,
        np.concatenate([np.full(len(full), capacity), rest[left]]),
        np.concatenate([np.arange(len(full)), np.array(instance, dtype=int) + len(full)]))


def _fit(lengths: list[int], capacity: int) -> list[int]:
    """Instance of each length, which is one of `capacity` at most; an instance is opened when none
    has room."""
    rooms = _Rooms(capacity)
    placed, opened = [], 0
    for length in lengths:
        room, instance = rooms.take(length)
        if instance is None:
            room, instance, opened = capacity, opened, opened + 1
        rooms.put(room - length, instance)
        placed.append(instance)
    return placed


class _Rooms:
    """Open instances by their free room; finds the smallest that is large enough.

    A tree of two levels: a bit for each room that some instance has, in words of `WORD` bits, and a
    bit for each word that is not empty.
    """

    def __init__(self, capacity: int):
        self.instances: list[list[int]] = [[] for _ in range(capacity + 1)]
        self.words = [0] * (capacity // WORD + 1)
        self.some = 0

    def put(self, room: int, instance: int) -> None:
        """Add an instance with so much room."""
        if room:
            self.instances[room].append(instance)
            self.words[room // WORD] |= 1 << room % WORD
            self.some |= 1 << room // WORD

    def take(self, least: int) -> tuple[int, int | None]:
        """Take out the instance with the smallest room that holds so much: room and instance."""
        at, bit = divmod(least, WORD)
        word = self.words[at] >> bit << bit
        if not word:
            above = self.some >> at + 1 << at + 1
            if not above:
                return 0, None
            at = _lowest(above)
            word = self.words[at]
        room = at * WORD + _lowest(word)
        instances = self.instances[room]
        instance = instances.pop()
        if not instances:
            self.words[at] &= ~(1 << room % WORD)
            if not self.words[at]:
                self.some &= ~(1 << at)
        return room, instance


def _lowest(word: int) -> int:
    """Place of the lowest bit that is set."""
    return (word & -word).bit_length() - 1


def _checked(lengths: Sequence[int], capacity: int) -> np.ndarray:
    found = np.asarray(lengths, dtype=np.int64)
    if capacity < 1 or not len(found) or found.min() < 1:
        raise UserError(f"nothing to pack: {len(found)} documents, the shortest of "
                        f"{found.min(initial=0)} tokens, into instances of {capacity}. Each has to "
                        f"have a token at least.")
    return found
