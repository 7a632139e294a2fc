"""Short instructions and right answers, with no long context.

They stand for the chat logs on which RetMask trains.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rmutils.corpora.world import copying, knowledge, writing
from rmutils.corpora.world import lexicon as words
from rmutils.corpora.world.facts import World
from rmutils.corpora.world.names import Split
from rmutils.corpora.world.samples import Sample

ON_TOPIC = {f.__name__: f for f in (
    knowledge.trade, knowledge.animal, knowledge.portrait, knowledge.season, knowledge.calendar,
    knowledge.arithmetic, knowledge.opposite, knowledge.category, knowledge.listing,
    writing.story, writing.two_words, writing.advice, writing.poem,
)}
"""The kinds whose topic is a common word: a model that cannot copy can still keep to it."""

KINDS: dict[str, Callable[[World], Sample]] = {f.__name__: f for f in (
    copying.repeat, copying.reverse, copying.quote, copying.look_up, copying.chain, copying.who,
    copying.complete, copying.turn, copying.report, writing.greet, writing.note,
)} | ON_TOPIC
"""The maker of each kind."""


def instruction(world: World, kind: str | None = None) -> Sample:
    """A short instruction and its answer.

    Parameters
    ----------
    kind : str, optional
        One of `KINDS`. Default: a random one.
    """
    return KINDS[kind or world.random.choice(list(KINDS))](world)


def instructions(count: int, seed: int | str = 0, split: Split = "train") -> list[Sample]:
    """Instructions with different prompts, each from a world of its own."""
    samples: dict[str, Sample] = {}
    draw = 0
    while len(samples) < count:
        sample = instruction(World(f"{seed}-{draw}", split))
        samples.setdefault(sample.prompt, sample)
        draw += 1
    return list(samples.values())


def words_of(text: str) -> list[str]:
    """The words and numbers of a text, in lower case."""
    return re.findall(r"\w+", text.lower())


def topic_words(sample: Sample) -> frozenset[str]:
    """Words of which an answer to the point holds at least one; empty outside `ON_TOPIC`."""
    if sample.kind not in ON_TOPIC:
        return frozenset()
    told = words_of(" ".join((sample.prompt, *sample.golds)))
    return frozenset().union(*(TOPICS.get(word, ()) for word in told))


def _topics() -> dict[str, frozenset[str]]:
    """For each topic, the words that belong to it."""
    topics = {word: {word} for word in (*words.THINGS, *words.SPOTS)}
    for names, members in knowledge.CATEGORIES.items():
        topics |= dict.fromkeys(names, set(words_of(" ".join((*names, *members)))))
    topics |= {word: {*pair} for pair in words.OPPOSITES for word in pair}
    numbers = {*words.COUNT, *(str(n) for n in range(1, 21))}
    topics |= {"plus": numbers, "minus": numbers}
    for name, what in (words.TRADES | words.ANIMALS).items():
        topics[name] = {name, *words_of(" ".join(what))} - {"a", "an", "the", "in", "at"}
    for name, (event, weather) in words.SEASONS.items():
        topics[name] = {name, weather, *words_of(event)} - {"the", "are"}
        months = [month.lower() for month in words.MONTHS_OF[name]]
        topics |= {month: {month} | topics[name] for month in months}
    return {word: frozenset(near) for word, near in topics.items()}


TOPICS = _topics()
"""Topic -> the words that belong to it, such as bread and oven to a baker."""
