"""Tasks that look up facts in a long text."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from rmutils.corpora.world.facts import Fact, World, sentence, values
from rmutils.corpora.world.lexicon import is_held_out
from rmutils.corpora.world.relations import HOPS, OF_KIND, Relation
from rmutils.corpora.world.samples import Count, Piece, Sample, fit, paragraphs, weave, write

FRAMES = {  # before and after the text; the last is held out
    "one": (
        # The prompt of `retrieval_head_detection.py`: a model has to know it to be measured by it.
        ("<book>", "</book>\nBased on the content of the book, Question: {q}\nAnswer:"),
        ("Read the text and answer the question.\n\n", "\n\nQuestion: {q}"),
        ("Here is a text.\n\n", "\n\n{q} Look it up in the text."),
        ("", "\n\nWhat does the text say? {q}"),
        ("Here is a text and a question.\n\n", "\n\nAnswer the question: {q}"),
    ),
    "several": (
        ("Read the text and answer all questions.\n\n", "\n\nQuestions: {q}"),
        ("Here is a text.\n\n", "\n\n{q} Look them up in the text."),
        ("", "\n\nWhat does the text say? Answer each question. {q}"),
        ("Here is a text with questions.\n\n", "\n\nAnswer each of the questions: {q}"),
    ),
    "list": (
        ("Here is a list of keys and values.\n\n", "\n\nWhat is the value of {q}?"),
        ("Read the list.\n\n", "\n\nWhich value does {q} have?"),
        ("", "\n\nLook up {q} in the list. What is its value?"),
        ("Read this list of keys and values.\n\n", "\n\nWhich value is in the list for {q}?"),
    ),
}
HOP_QUESTIONS = ("{w} is the {n}?", "Name the {n}.", "Say {w} is the {n}.",
                 "Look up {w} is the {n}.")
PHRASES = {"pet": "a {}", "keepsake": "a {}", "instrument": "the {}", "river": "the {} River"}
KEY_LETTERS = "ABCDEFGHKLMNPRSTVXYZ"


def told(
    world: World, *, avoid: Collection[str] = (), about_not: str | None = None
) -> Iterator[Piece]:
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
    """Facts easily taken for those: of the same relation, or about the same subject.

    They end when no subject is left.
    """
    keys = [(fact.subject, other.name) for fact in facts
            for other in OF_KIND[fact.spec.subject]]
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


def look_up(
    world: World, kind: str, frames: str, facts: Sequence[Fact], question: str, answer: str,
    golds: tuple[str, ...], more: Iterator[Piece], length: int, count: Count,
) -> Sample:
    """A question to a text in which the facts lie at uniformly drawn depths."""
    before, after = world.wording(FRAMES[frames])
    support = tuple(world.tell(fact) for fact in facts)
    order = world.random.sample(support, len(support))

    def build(pieces: list[Piece]) -> Sample:
        text = weave(world, [[line] for line in order], pieces)
        return Sample(kind, before, answer, paragraphs([line for piece in text for line in piece]),
                      after.format(q=question), golds, support,
                      thinking=" ".join(fact.answer for fact in facts))

    return fit(build, more, length, count)


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
    path = list(world.random.choice(HOPS))
    if path[-1].value in OF_KIND and length >= 128 and world.random.random() < 0.5:
        path.append(world.random.choice(OF_KIND[path[-1].value]))
    facts = chain(world, path)
    name = facts[0].subject
    for i, relation in enumerate(path):
        name = relation.noun.format(s=f"the {name}" if i else name)
    value = facts[-1].value
    question = world.wording(HOP_QUESTIONS).format(
        w="who" if path[-1].value == "person" else "what", n=name)
    phrase = PHRASES.get(path[-1].value, "{}").format(value)
    return look_up(world, "hops", "one", facts, sentence(question),
                   sentence(f"the {name} is {phrase}."), (value,),
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
