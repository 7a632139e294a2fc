"""The form of a sample, and long texts about a world that fill a given length."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rmutils.core.errors import UserError
from rmutils.corpora.world.facts import Fact, World

T = TypeVar("T")
Count = Callable[[str], int]  # number of tokens of a text
Piece = Sequence[str]  # sentences that stand together; the last ones may be left out
MISFITS = 8  # how many pieces are tried when the room is nearly used up
DRAWS = 8  # how many worlds in a row are tried if what they ask for does not fit
PARAGRAPH = 6  # sentences of a paragraph


@dataclass(frozen=True)
class Sample:
    """One instruction or task with all that is known about its answer."""

    kind: str  # which instruction or task it is
    before: str
    answer: str  # a right answer, in full
    context: str = ""
    after: str = ""
    golds: tuple[str, ...] = ()  # what a right answer must hold, such as the value asked for
    support: tuple[str, ...] = ()  # sentences of the context from which the answer follows
    # the sentences that a good summary holds; empty in other kinds
    key_points: tuple[str, ...] = ()
    thinking: str = ""  # the chain of look-ups that leads to the answer; empty without one

    @property
    def prompt(self) -> str:
        """The whole user turn."""
        return f"{self.before}{self.context}{self.after}"


class TooShort(UserError):
    """The length is too short for what the answer needs; `least` tokens would hold it."""

    def __init__(self, kind: str, length: int, least: int):
        super().__init__(f"A task of kind {kind!r} does not fit in {length} tokens. "
                         f"Give it a length of at least {least}.")
        self.least = least


def weave(world: World, kept: Sequence[T], others: Sequence[T]) -> list[T]:
    """`kept`, in order, at random places among the others (the outer fifths: `outer`), shuffled."""
    total = len(kept) + len(others)
    places = set(world.random.sample(range(total), len(kept)) if world.outer is None
                 else _outer_places(world, len(kept), total, world.outer))
    kept_left, others_left = iter(kept), iter(world.random.sample(others, len(others)))
    return [next(kept_left if i in places else others_left) for i in range(total)]


def is_outer(place: float) -> bool:
    """Return whether a place, 0 to 1, is in the first or the last fifth of a text."""
    return not 0.2 <= place < 0.8


def _outer_places(world: World, number: int, total: int, outer: float) -> list[int]:
    left, chosen = list(range(total)), []
    for _ in range(number):
        wanted = world.random.random() < outer
        chosen.append(world.random.choice(
            [i for i in left if is_outer((i + 0.5) / total) == wanted] or left))
        left.remove(chosen[-1])
    return chosen


def fit(build: Callable[[list[Piece]], Sample], more: Iterator[Piece], length: int, count: Count,
        joint: str = " ") -> Sample:
    """The sample filled up to a length."""
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


def write(world: World, facts: Sequence[Fact], fillers: float = 0.2) -> list[str]:
    """Sentences that tell the facts in this order, with fillers strewn in."""
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


def woven(world: World, lines: Sequence[str]) -> Callable[[list[Piece]], str]:
    """Return a maker of texts with these sentences at random depths among other pieces."""
    order = [[line] for line in world.random.sample(lines, len(lines))]
    return lambda pieces: paragraphs([line for piece in weave(world, order, pieces)
                                      for line in piece])


def padding(world: World, room: int, count: Callable[[str], int], *,
            avoid: Collection[str] = ()) -> list[str]:
    """Sentences that tell new facts and fill at most `room` tokens."""
    sentences: list[str] = []
    while True:
        told = write(world, [world.new_fact(avoid=avoid)])
        room -= sum(count(" " + sentence) for sentence in told)
        if room < 0:
            return sentences
        sentences += told
