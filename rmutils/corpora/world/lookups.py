"""Tasks that look up facts: in a long text, or over numbered documents, each about one entity."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from rmutils.corpora.world.facts import Fact, World, sentence, values
from rmutils.corpora.world.lexicon import HOPS, OF_KIND, RELATIONS, Relation, is_held_out, table
from rmutils.corpora.world.samples import Count, Piece, Sample, fit, weave, woven, write

FRAMES: dict[str, tuple] = table("frames")
"""Frames, the text before and after; the last pair of each kind is held out."""
PHRASES = {"pet": "a {}", "keepsake": "a {}", "instrument": "the {}", "river": "the {} River"}
KEY_LETTERS = "ABCDEFGHKLMNPRSTVXYZ"


def told(world: World, *, avoid: Collection[str] = (),
         about_not: str | None = None) -> Iterator[Piece]:
    """New facts in words, without end; none in relations to avoid, none that names one entity."""
    while True:
        fact = world.new_fact(avoid=avoid)
        if about_not not in (fact.subject, fact.value):
            yield write(world, [fact])


def mixed(world: World, rivals: Iterator[Piece]) -> Iterator[Piece]:
    """Rivals and other facts in equal parts, and only others when the rivals come to an end."""
    others = told(world)
    while True:
        rival = next(rivals, None) if world.random.random() < 0.5 else None
        yield rival or next(others)


def rivals(world: World, facts: Sequence[Fact]) -> Iterator[Piece]:
    """Facts easily taken for those, while any are left: of the same relation or subject."""
    keys = [(fact.subject, other.name) for fact in facts for other in OF_KIND[fact.spec.subject]]
    world.random.shuffle(keys)
    while True:
        while keys and keys[-1] in world.facts:
            keys.pop()
        if keys and world.random.random() < 0.4:
            yield [world.tell(world.fact(*keys.pop()))]
        else:
            try:
                fact = world.new_fact(world.random.choice(facts).relation)
            except LookupError:
                return
            yield [world.tell(fact)]


def look_up(world: World, kind: str, frames: str, facts: Sequence[Fact], question: str, answer: str,
            golds: tuple[str, ...], more: Iterator[Piece], length: int, count: Count) -> Sample:
    """A question to a text in which the facts lie at uniformly drawn depths."""
    before, after = world.wording(FRAMES[frames])
    support = tuple(world.tell(fact) for fact in facts)
    text, thinking = woven(world, support), " ".join(fact.answer for fact in facts)
    return fit(lambda pieces: Sample(
        kind, before, answer, text(pieces), after.format(q=question), golds, support,
        thinking=thinking), more, length, count)


def needle(world: World, length: int, count: Count) -> Sample:
    """One fact among others; in half of the cases among facts easily taken for it."""
    fact = world.new_fact(world.random.choice(world.random.choice(list(OF_KIND.values()))).name)
    hard = world.random.random() < 0.5
    more = mixed(world, rivals(world, [fact])) if hard else told(world, avoid={fact.relation})
    return look_up(world, "needle", "one", [fact], world.ask(fact), fact.answer, (fact.value,),
                   more, length, count)


def needles(world: World, length: int, count: Count) -> Sample:
    """Two to four facts: several subjects in one relation, or several relations of one subject."""
    number = world.random.randint(2, max(2, min(4, length // 60)))
    kind = world.random.choice(list(OF_KIND))
    if world.random.random() < 0.5:
        relation = world.random.choice(OF_KIND[kind]).name
        subjects = [world.entity(kind) for _ in range(number)]
        facts = [world.fact(subject, relation) for subject in subjects]
    else:
        subject = world.entity(kind)
        relations = world.random.sample(OF_KIND[kind], min(number, len(OF_KIND[kind])))
        facts = [world.fact(subject, relation.name) for relation in relations]
    hard = world.random.random() < 0.5
    more = mixed(world, rivals(world, facts)) if hard else told(world)
    return look_up(world, "needles", "several", facts, " ".join(map(world.ask, facts)),
                   " ".join(fact.answer for fact in facts), tuple(fact.value for fact in facts),
                   more, length, count)


def hop_path(world: World, longer: bool = True) -> list[Relation]:
    """Two relations of which one leads to the other; in half of the cases three, where allowed."""
    path = list(world.random.choice(HOPS))
    if path[-1].value in OF_KIND and longer and world.random.random() < 0.5:
        path.append(world.random.choice(OF_KIND[path[-1].value]))
    return path


def hop_name(path: Sequence[Relation], subject: str) -> str:
    """Return what a chain leads to, as in "mayor of the town where X lives"."""
    name = subject
    for i, relation in enumerate(path):
        name = relation.noun.format(s=f"the {name}" if i else name)
    return name


def ask_hop(world: World, path: Sequence[Relation], name: str) -> str:
    """A question for what a chain leads to."""
    who = "who" if path[-1].value == "person" else "what"
    return sentence(world.wording(FRAMES["hops"]).format(w=who, n=name))


def answer_hop(path: Sequence[Relation], name: str, value: str) -> str:
    """Its answer, a sentence."""
    return sentence(f"the {name} is {PHRASES.get(path[-1].value, '{}').format(value)}.")


def chain(world: World, relations: Sequence[Relation]) -> list[Fact]:
    """Facts each about the value of the one before; no entity comes twice."""
    while True:
        facts = [world.new_fact(relations[0].name)]
        for relation in relations[1:]:
            facts.append(world.fact(facts[-1].value, relation.name))
        if len({fact.subject for fact in facts} | {facts[-1].value}) == len(facts) + 1:
            return facts


def rival_chains(world: World, relations: Sequence[Relation]) -> Iterator[Piece]:
    """Sentences of other chains of the same relations; no fact is told twice."""
    while True:
        known = len(world.facts)
        try:
            chain(world, relations)
        except LookupError:  # no subject is left
            return
        for fact in list(islice(reversed(world.facts.values()), len(world.facts) - known)):
            yield [world.tell(fact)]


def hops(world: World, length: int, count: Count) -> Sample:
    """A question that takes two or three facts, each about the value of the one before."""
    path = hop_path(world, longer=length >= 128)
    facts = chain(world, path)
    name, value = hop_name(path, facts[0].subject), facts[-1].value
    return look_up(world, "hops", "one", facts, ask_hop(world, path, name),
                   answer_hop(path, name, value), (value,),
                   mixed(world, rival_chains(world, path)), length, count)


def code_lines(world: World) -> Iterator[Piece]:
    """Lines of a code and a phrase without end, each code once."""
    used: set[str] = set()
    while True:
        key = f"{world.random.choice(KEY_LETTERS)}{world.random.randrange(1000, 10000)}"
        if key not in used and is_held_out(key) == (world.split == "held_out"):
            used.add(key)
            kind = world.random.choice(("keepsake", "pet", "product"))
            yield [f"{key}: {world.random.choice(values(kind, world.split))}"]


def key_value(world: World, length: int, count: Count) -> Sample:
    """Lines of a code and a phrase; the phrase of one code is asked for."""
    more = code_lines(world)
    line, = next(more)
    key, value = line.split(": ")
    before, after = world.wording(FRAMES["list"])

    def build(pieces: list[Piece]) -> Sample:
        text = "\n".join(piece[0] for piece in weave(world, [[line]], pieces))
        return Sample("key_value", before, f"The value of {key} is {value}.", text,
                      after.format(q=key), (value,), (line,), thinking=line)

    return fit(build, more, length, count, "\n")


MARK = "Document 00"  # stands for the number as long as it is open
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


def some_facts(world: World, subject: str, relation: str | None = None,
               avoid: Collection[str] = ()) -> list[Fact]:
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
    """Documents to be ranked by how well they answer a question."""
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
