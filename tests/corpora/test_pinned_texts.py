"""The invented world's texts stay as they are: models and stored results depend on them."""

import hashlib
from collections.abc import Iterable, Iterator

import pytest

from rmutils.corpora.world import World
from rmutils.corpora.world.knowledge import KINDS, instruction, topic_words
from rmutils.corpora.world.samples import TooShort
from rmutils.corpora.world.tasks import TASKS, held_out_needles, task
from rmutils.corpora.world.writing import Chronicle
from rmutils.evaluation.failure_prompts import failure_prompts
from rmutils.evaluation.helmet.suite import DATASETS, SUITE

SPLITS = ("train", "held_out")


def hashed(things: Iterable[object]) -> str:
    digest = hashlib.sha256()
    for thing in things:
        digest.update(repr(thing).encode())
    return digest.hexdigest()[:16]


def fields(sample: object) -> list[tuple[str, str]]:
    return sorted((name, repr(value)) for name, value in vars(sample).items()
                  if (name, value) != ("prefix", ""))  # a field that came later


def count(text: str) -> int:
    return len(text.split())


def instructions() -> Iterator[object]:
    for split in SPLITS:
        for kind in KINDS:
            for i in range(16):
                sample = instruction(World(f"i{i}", split), kind)
                yield fields(sample), sorted(topic_words(sample))


def tasks() -> Iterator[object]:
    for split in SPLITS:
        for kind in TASKS:
            for i, length in enumerate((40, 90, 200, 400) * 2):
                world = World(f"t{i}", split)
                try:
                    yield fields(task(kind, world, length, count)), world.random.random()
                except TooShort as error:
                    yield str(error), world.random.random()


def questions() -> Iterator[object]:
    for name in sorted(name for names in SUITE.values() for name in names):
        for number in (1, 3, 5):
            world = Chronicle(f"q{number}")
            try:
                asked = DATASETS[name].make(world, 300, count, number)
                yield name, [fields(question) for question in asked], world.random.random()
            except TooShort as error:
                yield name, str(error), world.random.random()


def needles() -> list[object]:
    haystack, sets = held_out_needles(0)
    return [(haystack, *(sets[name] for name in ("needles", "reworded", "plain")))]


def prompts() -> Iterator[object]:
    for corpus in ("book", "world"):
        yield from map(fields, failure_prompts(8, 3, corpus))


@pytest.mark.parametrize("texts, wanted", [
    (instructions, "a31bbbe70d4f9c19"), (tasks, "ae9be5acd829d6da"),
    (questions, "f99dc3a2744b0542"), (prompts, "499eb7b919ce5edc"),
    (needles, "c6e84f616158d8af"),
], ids=["instructions", "tasks", "questions", "failure prompts", "needles"])
def test_texts_are_as_they_were(texts, wanted):
    assert hashed(texts()) == wanted
