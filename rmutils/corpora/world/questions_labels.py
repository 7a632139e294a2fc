"""Texts to be labelled by the examples of others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress

from rmutils.corpora.world.fitting import Count, Piece
from rmutils.corpora.world.questions import Chronicle, Question, ask_all, with_answer
from rmutils.corpora.world.reading import CLASSIFY, labels
from rmutils.corpora.world.relations import OF_KIND, RELATIONS

MANY = 12
"""Classes of the finer labels."""


def coarse_labels(world: Chronicle, length: int, count: Count, questions: int) -> list[Question]:
    """Four classes: whether a text is about a person, a place, an object or an event."""
    classes = [[relation.name for relation in of_kind] for of_kind in OF_KIND.values()]
    return _labelled(world, [_about_any(world, names) for names in classes], length, count,
                     questions)


def fine_labels(world: Chronicle, length: int, count: Count, questions: int) -> list[Question]:
    """Twelve classes: which relation a text tells. The examples end where names are used up, which
    takes more than 16,000 tokens."""
    names = world.random.sample(list(RELATIONS), MANY)
    return _labelled(world, [_about_any(world, [name]) for name in names], length, count,
                     questions)


def name_labels(world: Chronicle, length: int, count: Count, questions: int) -> list[Question]:
    """Twelve classes: which person a text is about. No text that is asked about is an example."""
    persons = [world.entity("person") for _ in range(MANY)]
    return _labelled(world, [_about(world, person) for person in persons], length, count,
                     questions)


def _about_any(world: Chronicle, relations: Sequence[str]) -> Iterator[str]:
    """Sentences in these relations about any subjects, as long as there are names."""
    with suppress(LookupError):
        while True:
            yield world.tell(world.new_fact(world.random.choice(relations)))


def _about(world: Chronicle, person: str) -> Iterator[str]:
    """Sentences about a person; the first ones are told only once."""
    relations = world.random.sample(OF_KIND["person"], len(OF_KIND["person"]))
    facts = [world.fact(person, relation.name) for relation in relations]
    yield from map(world.tell, facts[:4])
    while True:
        yield world.tell(world.random.choice(facts[4:]))


def _labelled(
    world: Chronicle, classes: Sequence[Iterator[str]], length: int, count: Count, questions: int
) -> list[Question]:
    """Texts to be labelled, and rounds of one example of each class, as far as they fit."""
    text_of = dict(zip(labels(world, len(classes)), classes, strict=True))
    order = itertools.chain.from_iterable(
        world.random.sample(list(text_of), len(text_of)) for _ in itertools.count())
    asked = [(next(text_of[label]), label) for label in itertools.islice(order, questions)]

    def examples() -> Iterator[Piece]:
        for _ in itertools.count():
            for label in world.random.sample(list(text_of), len(text_of)):
                if (text := next(text_of[label], None)) is None:
                    return
                yield [f"Text: {text} Label: {label}"]

    before, after = world.wording(CLASSIFY)
    found = ask_all(world, "classify", before, [after.format(q=told) for told, _ in asked],
                    lambda pieces: "\n".join(line for line, in pieces), examples(), length, count,
                    "\n")
    return [with_answer(world, question, [], f"Label: {label}", golds=(label,))
            for question, (_, label) in zip(found, asked, strict=True)]
