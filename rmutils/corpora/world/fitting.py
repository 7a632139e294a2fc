"""Tasks of a given length: how a long text is filled up and what stands around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from rmutils.corpora.world.facts import World
from rmutils.corpora.world.samples import Sample
from rmutils.errors import UserError

T = TypeVar("T")
Count = Callable[[str], int]
Piece = Sequence[str]
"""Sentences that stand together; the last ones may be left out."""

MISFITS = 8
"""So many pieces are tried when the room is nearly used up."""


class TooShort(UserError):
    """The length does not even hold what the answer needs; `least` is what would."""

    def __init__(self, kind: str, length: int, least: int):
        super().__init__(f"A task of kind {kind!r} does not fit in {length} tokens. "
                         f"Give it a length of at least {least}.")
        self.least = least


def weave(world: World, kept: Sequence[T], others: Sequence[T]) -> list[T]:
    """`kept`, in its order, at uniformly drawn places among the others, which are shuffled."""
    total = len(kept) + len(others)
    places = set(world.random.sample(range(total), len(kept)))
    kept_left, others_left = iter(kept), iter(world.random.sample(others, len(others)))
    return [next(kept_left if i in places else others_left) for i in range(total)]


def fit(
    build: Callable[[list[Piece]], Sample], more: Iterator[Piece], length: int, count: Count,
    joint: str = " ",
) -> Sample:
    """The sample filled up to a length.

    Parameters
    ----------
    build : callable
        The sample with these pieces in its context besides those it cannot do without.
    more : iterator
        Further pieces, as many as there are.
    length : int
        Most tokens of the whole user turn.
    count : callable
        Number of tokens of a text. It sees single sentences, and the whole text only twice or so.
    joint : str
        What stands before a piece.

    Raises
    ------
    TooShort
        If the sample is too long without any piece.
    """
    sample = build([])
    room = length - count(sample.prompt)
    if room < 0:
        raise TooShort(sample.kind, length, length - room)
    pieces, sizes, misfits = [], [], 0
    for texts in more:
        piece, size = [], 0
        for text in texts:
            more_size = count((" " if piece else joint) + text)
            if size + more_size > room:
                misfits += 1
                break
            piece.append(text)
            size += more_size
        if piece:
            pieces.append(piece)
            sizes.append(size)
            room -= size
        if misfits == MISFITS:
            break
    while (over := count((sample := build(pieces)).prompt) - length) > 0:
        while over > 0:  # sentences side by side can have more tokens than each has alone
            over -= sizes.pop()
            pieces.pop()
    return sample
