"""Several questions about one long text, each with all that the text tells.

HELMET asks several questions about one book. So do we about each text: what they share has to be
read only once, and there is more to ask in the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rmutils.corpora.world.facts import Fact, World
from rmutils.corpora.world.lexicon import Split
from rmutils.corpora.world.numbered import NUMBER
from rmutils.corpora.world.samples import Count, Piece, Sample, fit


@dataclass(frozen=True)
class Question(Sample):
    """A sample that knows the facts of its context.

    Attributes
    ----------
    asked : tuple of Fact
        What an answer has to tell.
    told : tuple of (Fact, int)
        All that the context tells, each with the number of its document; 0 where there are none.
    """

    asked: tuple[Fact, ...] = ()
    told: tuple[tuple[Fact, int], ...] = ()

    @property
    def documents(self) -> int:
        """How many numbered documents the context has."""
        return len(NUMBER.findall(self.context))

    @property
    def depth(self) -> float:
        """Where the supporting sentence stands, from 0 (start of the context) to 1; NaN if there
        are several, or none."""
        if len(self.support) != 1:
            return float("nan")
        return self.context.index(self.support[0]) / len(self.context)

    def sources(self, fact: Fact) -> list[int]:
        """The numbers of the documents that tell a fact."""
        return [number for told, number in self.told if told == fact]


class Chronicle(World):
    """A world that remembers which sentence tells which fact."""

    def __init__(self, seed: int | str, split: Split = "held_out"):
        super().__init__(seed, split)
        self.lines: dict[str, Fact] = {}

    def tell(self, fact: Fact) -> str:
        line = super().tell(fact)
        self.lines[line] = fact
        return line

    def lines_in(self, context: str) -> dict[str, tuple[Fact, int]]:
        """Sentences of a text with their facts and numbers of documents, in the text's order."""
        starts = [match.start() for match in NUMBER.finditer(context)]
        found = sorted((place, line) for line in self.lines
                       if (place := context.find(line)) >= 0)
        return {line: (self.lines[line], sum(start <= place for start in starts))
                for place, line in found}


def ask_all(
    world: Chronicle, kind: str, before: str, afters: Sequence[str],
    build: Callable[[list[Piece]], str], more: Iterator[Piece], length: int, count: Count,
    joint: str = " ",
) -> list[Question]:
    """Questions about one text, which is filled up so that the longest of them fits.

    Parameters
    ----------
    before : str
        What stands before the text.
    afters : sequence of str
        What stands behind it, for each question.
    build : callable
        The text with these pieces in it.
    more, length, count, joint
        As for `rmutils.corpora.world.samples.fit`.

    Returns
    -------
    list of Question
        Without answers.
    """
    longest = max(afters, key=count)
    sample = fit(lambda pieces: Sample(kind, before, "", build(pieces), longest), more, length,
                 count, joint)
    told = tuple(world.lines_in(sample.context).values())
    return [Question(kind, before, "", sample.context, after, told=told) for after in afters]


def with_answer(
    world: Chronicle, question: Question, facts: Sequence[Fact], answer: str, **known
) -> Question:
    """A question about facts with its answer, golds and support; `known` has other fields."""
    lines = {fact: line for line, (fact, _) in reversed(
        world.lines_in(question.context).items())}
    return replace(question, **{
        "answer": answer, "asked": tuple(facts), "golds": tuple(f.value for f in facts),
        "support": tuple(lines[fact] for fact in facts), **known})
