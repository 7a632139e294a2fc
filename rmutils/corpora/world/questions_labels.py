"""Texts to be labelled by the examples of others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from rmutils.corpora.world.fitting import Count, Piece
from rmutils.corpora.world.questions import Chronicle, Question, ask_all, with_answer
from rmutils.corpora.world.reading import CLASSIFY, labels
from rmutils.corpora.world.relations import OF_KIND, RELATIONS

FINE = 12
"""Classes of the fine labels."""


def coarse_labels(world: Chronicle, length: int, count: Count, questions: int) -> list[Question]:
    """Four classes: whether a text is about a person, a place, an object or an event."""
    return _label(world, [[relation.name for relation in of_kind] for of_kind in OF_KIND.values()],
                  length, count, questions)


def fine_labels(world: Chronicle, length: int, count: Count, questions: int) -> list[Question]:
    """Twelve classes: which relation a text tells."""
    return _label(world, [[name] for name in world.random.sample(list(RELATIONS), FINE)],
                  length, count, questions)


def _label(
    world: Chronicle, classes: Sequence[Sequence[str]], length: int, count: Count, questions: int
) -> list[Question]:
    """Rounds of one example of each class, as far as they fit."""
    label_of = dict(zip(labels(world, len(classes)), classes, strict=True))

    def text(label: str) -> str:
        return world.tell(world.new_fact(world.random.choice(label_of[label])))

    def examples() -> Iterator[Piece]:
        for _ in itertools.count():
            for label in world.random.sample(list(label_of), len(label_of)):
                try:
                    yield [f"Text: {text(label)} Label: {label}"]
                except LookupError:  # all names are taken
                    return

    before, after = world.wording(CLASSIFY)
    asked = [(text(label), label) for label in
             (world.random.choice(list(label_of)) for _ in range(questions))]
    found = ask_all(world, "classify", before, [after.format(q=told) for told, _ in asked],
                    lambda pieces: "\n".join(line for line, in pieces), examples(), length, count,
                    "\n")
    return [with_answer(world, question, [], f"Label: {label}", golds=(label,))
            for question, (_, label) in zip(found, asked, strict=True)]
