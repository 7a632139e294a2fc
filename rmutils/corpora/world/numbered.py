"""Tasks over numbered documents, each about one entity."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from rmutils.corpora.world.facts import Fact, World, sentence
from rmutils.corpora.world.lexicon import OF_KIND, RELATIONS
from rmutils.corpora.world.lookups import FRAMES
from rmutils.corpora.world.samples import Count, Piece, Sample, fit, weave

MARK = "Document 00"
"""Stands for the number as long as it is open."""
NUMBER = re.compile(r"^Document (\d+) ", re.MULTILINE)


def newcomer(world: World) -> str:
    """A new entity of any kind of which names are left."""
    while True:
        with suppress(LookupError):
            return world.entity(world.random.choice(list(OF_KIND)))


def document(world: World, subject: str, lines: Sequence[str]) -> Piece:
    """A document about the subject, whose number is still open; fillers are strewn in."""
    piece = [f"{MARK} ({sentence(subject)}): {lines[0]}"]
    for line in lines[1:]:
        if world.random.random() < 0.2:
            piece.append(world.filler())
        piece.append(line)
    return piece


def some_facts(
    world: World, subject: str, relation: str | None = None, avoid: Collection[str] = ()
) -> list[Fact]:
    """Two to four facts about a subject in any order, one in the relation, none to avoid."""
    names = [r.name for r in OF_KIND[world.kinds[subject]]
             if r.name not in avoid and r.name != relation]
    number = world.random.randint(2, 4) - (relation is not None)
    names = world.random.sample(names, min(number, len(names))) + [relation] * bool(relation)
    world.random.shuffle(names)
    return [world.fact(subject, name) for name in names]


def unlike(world: World, avoid: Collection[str] = (), not_named: str = "") -> Iterator[Piece]:
    """Documents about new entities that tell no relation to avoid, without end."""
    while True:
        subject = newcomer(world)
        facts = some_facts(world, subject, avoid=avoid)
        if facts and all(fact.value != not_named for fact in facts):
            yield document(world, subject, [world.tell(fact) for fact in facts])


def alike(world: World, relation: str) -> Piece:
    """A document about another entity that tells the same relation."""
    subject = world.entity(RELATIONS[relation].subject)
    facts = some_facts(world, subject, relation)
    return document(world, subject, [world.tell(fact) for fact in facts])


def among(world: World, facts: Sequence[Fact]) -> Iterator[Piece]:
    """In one half of the cases any documents, in the other many that are like the right ones."""
    others = unlike(world)
    hard = world.random.random() < 0.5
    while True:
        try:
            yield alike(world, world.random.choice(facts).relation) \
                if hard and world.random.random() < 0.5 else next(others)
        except LookupError:  # all names of this kind are taken
            hard = False


def numbered(documents: Sequence[Piece]) -> str:
    """The documents one after the other, with their numbers from 1 on."""
    return "\n\n".join(" ".join(piece).replace(MARK, f"Document {number}", 1)
                       for number, piece in enumerate(documents, 1))


def gold_positions(sample: Sample) -> tuple[list[int], int]:
    """The numbers of the documents that hold the supporting sentences, and how many there are."""
    places = [sample.context.index(line) for line in sample.support]
    starts = [match.start() for match in NUMBER.finditer(sample.context)]
    return [sum(start <= place for start in starts) for place in places], len(starts)


def right_documents(world: World, number: int) -> tuple[list[Fact], list[Piece], list[str]]:
    """Facts to ask for, the document of each, and its sentence there."""
    asked, pieces, support = [], [], []
    for _ in range(number):
        subject = newcomer(world)
        facts = some_facts(world, subject)
        lines = [world.tell(fact) for fact in facts]
        chosen = world.random.randrange(len(facts))
        asked.append(facts[chosen])
        pieces.append(document(world, subject, lines))
        support.append(lines[chosen])
    return asked, pieces, support


def cited(facts: Sequence[Fact], numbers: Sequence[int]) -> str:
    """Sentences that tell the facts, each with the number of its document."""
    return " ".join(f"{fact.answer.removesuffix('.')} [{number}]."
                    for fact, number in zip(facts, numbers, strict=True))


def ask(world: World, kind: str, number: int, length: int, count: Count) -> Sample:
    """Questions about facts of so many documents among others."""
    facts, pieces, support = right_documents(world, number)
    question = " ".join(map(world.ask, facts))
    before, after = world.wording(FRAMES[kind])
    order = world.random.sample(pieces, number)

    def build(others: list[Piece]) -> Sample:
        text = weave(world, order, others)
        answer = " ".join(fact.answer for fact in facts) if kind == "documents_qa" \
            else cited(facts, [text.index(piece) + 1 for piece in pieces])
        return Sample(kind, before, answer, numbered(text), after.format(q=question),
                      tuple(fact.value for fact in facts), tuple(support),
                      thinking=" ".join(fact.answer for fact in facts))

    return fit(build, among(world, facts), length, count, "\n\n")


def documents_qa(world: World, length: int, count: Count) -> Sample:
    """A question to one of many documents; `gold_positions` says to which."""
    return ask(world, "documents_qa", 1, length, count)


def citations(world: World, length: int, count: Count) -> Sample:
    """One to three questions, answered with the numbers of the documents, as in "... [3]."."""
    return ask(world, "citations", world.random.randint(1, max(1, min(3, length // 120))), length,
               count)


def rerank(world: World, length: int, count: Count) -> Sample:
    """Documents to be ranked by how well they answer a question.

    One document holds the answer (grade 2). Some are about the same subject, or tell the same
    relation of another (grade 1). The others do neither (grade 0). The answer names the documents
    of grades 2 and 1, those of one grade by their number, and `golds` holds "number:grade" for
    each of them.
    """
    (fact,), (piece,), (line,) = right_documents(world, 1)
    near = []
    for _ in range(world.random.randint(1, max(1, min(3, length // 150)))):
        rest = [r for r in OF_KIND[fact.spec.subject] if (fact.subject, r.name) not in world.facts]
        if len(rest) > 1 and world.random.random() < 0.5:
            lines = [world.tell(world.fact(fact.subject, r.name))
                     for r in world.random.sample(rest, 2)]
            near.append(document(world, fact.subject, lines))
        else:
            near.append(alike(world, fact.relation))
    order = world.random.sample([piece, *near], len(near) + 1)
    before, after = world.wording(FRAMES["rerank"])
    question = world.ask(fact)

    def build(others: list[Piece]) -> Sample:
        text = weave(world, order, others)
        best = text.index(piece) + 1
        ranks = [best, *sorted(text.index(other) + 1 for other in near)]
        return Sample("rerank", before, " > ".join(f"[{n}]" for n in ranks), numbered(text),
                      after.format(q=question),
                      tuple(f"{n}:{2 if n == best else 1}" for n in ranks), (line,),
                      thinking=cited([fact], [best]))

    return fit(build, unlike(world, {fact.relation}, fact.subject), length, count, "\n\n")
