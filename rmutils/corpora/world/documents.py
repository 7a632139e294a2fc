"""Long texts about a world."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from rmutils.corpora.world.facts import Fact, World

PARAGRAPH = 6
"""Sentences of a paragraph."""


def write(world: World, facts: Sequence[Fact], fillers: float = 0.2) -> list[str]:
    """Sentences that tell the facts in this order, with fillers strewn in.

    Parameters
    ----------
    fillers : float
        Mean number of fillers before a fact, below 1.
    """
    sentences = []
    for fact in facts:
        if world.random.random() < fillers:
            sentences.append(world.filler())
        sentences.append(world.tell(fact))
    return sentences


def paragraphs(sentences: Sequence[str]) -> str:
    """Sentences as a text of paragraphs."""
    blocks = [sentences[i : i + PARAGRAPH] for i in range(0, len(sentences), PARAGRAPH)]
    return "\n\n".join(" ".join(block) for block in blocks)


def padding(
    world: World, room: int, count: Callable[[str], int], *, avoid: Collection[str] = ()
) -> list[str]:
    """Sentences that tell new facts and fill at most `room` tokens.

    Parameters
    ----------
    count : callable
        Number of tokens of a text.
    avoid : collection of str
        Relations that are not told, so that a question about them has one answer.
    """
    sentences: list[str] = []
    while True:
        told = write(world, [world.new_fact(avoid=avoid)])
        room -= sum(count(" " + sentence) for sentence in told)
        if room < 0:
            return sentences
        sentences += told
