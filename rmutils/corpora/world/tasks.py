"""Tasks over long texts about the invented world, with exact answers."""

from __future__ import annotations

from collections.abc import Callable

from rmutils.corpora.world.facts import World
from rmutils.corpora.world.fitting import Count, TooShort
from rmutils.corpora.world.lookups import hops, key_value, needle, needles
from rmutils.corpora.world.numbered import citations, documents_qa, rerank
from rmutils.corpora.world.reading import classify, summary
from rmutils.corpora.world.samples import Sample

TASKS: dict[str, Callable[[World, int, Count], Sample]] = {
    maker.__name__: maker for maker in (
        needle, needles, key_value, documents_qa, citations, rerank, classify, summary, hops)
}
"""Kind -> maker(world, length, count)."""

DRAWS = 8
"""So many samples are drawn to find one that fits."""


def task(kind: str, world: World, length: int, count: Count) -> Sample:
    """A task of a kind.

    Parameters
    ----------
    kind : str
        A key of `TASKS`.
    world : World
        All that is drawn is drawn from its generator, in the words of its split. Give each task a
        world of its own: one that has told of all its towns raises LookupError.
    length : int
        Most tokens of the whole user turn, which is filled as far as whole sentences allow.
    count : callable
        Number of tokens of a text. It is called for each sentence: give one that remembers.

    Raises
    ------
    UserError
        If the length is too short for the kind; the message says what would do.
    """
    needed = []
    for _ in range(DRAWS):
        try:
            return TASKS[kind](world, length, count)
        except TooShort as error:
            needed.append(error.least)
    raise TooShort(kind, length, min(needed)) from None
