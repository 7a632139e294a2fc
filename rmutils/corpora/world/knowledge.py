"""Short instructions and right answers, without a long context, and what everybody knows.

They stand for the chat logs on which RetMask trains.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rmutils.corpora.world import copying, writing
from rmutils.corpora.world import lexicon as words
from rmutils.corpora.world.facts import World, sentence, values
from rmutils.corpora.world.lexicon import Split, table
from rmutils.corpora.world.samples import Sample

CATEGORIES = {  # (one, many): the words
    ("food", "foods"): [*words.CROPS, *words.DISHES],
    ("instrument", "instruments"): words.INSTRUMENTS,
    ("thing", "things"): words.THINGS,
    ("animal", "animals"): list(words.ANIMALS),
    ("trade", "trades"): list(words.TRADES),
    ("colour", "colours"): words.COLOURS,
    ("month", "months"): words.MONTHS,
    ("day", "days"): words.DAYS,
}

KNOWN = ("trade", "animal", "season", "calendar", "opposite")
"""Kinds of short instructions with one right answer, which the instruction does not hold and which
takes no reasoning: what a baker does, which day comes after Monday."""
_TABLE = table("instructions")


def trade(world: World) -> Sample:
    """A trade: what it does, with what and where."""
    return _ask(world, "trade", **_trade(world.random.choice(list(words.TRADES))))


def animal(world: World) -> Sample:
    """An animal: what it does and where it lives."""
    return _ask(world, "animal", **_animal(world.random.choice(list(words.ANIMALS))))


def portrait(world: World) -> Sample:
    """Three sentences about a trade or an animal."""
    if world.random.random() < 0.6:
        slots = _trade(world.random.choice(list(words.TRADES)))
        lines = ["A {t} {does}.", "A {t} works with {tool}.", "You can find a {t} {where}."]
    else:
        slots = _animal(world.random.choice(list(words.ANIMALS)))
        lines = ["A {t} is an animal.", "A {t} {does}.", "You can find a {t} {where}."]
    world.random.shuffle(lines)
    text = " ".join(sentence(line.format(**slots)) for line in lines)
    prompt = sentence(world.wording(_TABLE["portrait"]).format(**slots))
    return Sample("portrait", prompt, text, golds=(slots["t"], slots["does"], slots["where"]))


def season(world: World) -> Sample:
    """The weather, the months and the signs of a season."""
    name = world.random.choice(list(words.SEASONS))
    event, weather = words.SEASONS[name]
    months = words.MONTHS_OF[name]
    return _ask(world, "season", t=name, event=event, weather=weather,
                month=world.random.choice(months), months=listed(months))


def calendar(world: World) -> Sample:
    """The month or day before or after another."""
    one, cycle = world.random.choice((("month", words.MONTHS), ("day", words.DAYS)))
    i = world.random.randrange(len(cycle))
    return _ask(world, "calendar", one=one, this=cycle[i - 1], next=cycle[i])


def arithmetic(world: World) -> Sample:
    """A sum or a difference up to twenty, in words or in digits."""
    a = world.random.randint(1, 19)
    b = world.random.randint(1, 20 - a)
    write = world.random.choice((str, lambda n: words.COUNT[n - 1]))
    return _ask(world, "arithmetic", a=write(a), b=write(b), c=write(a + b))


def opposite(world: World) -> Sample:
    """The opposite of an adjective."""
    a, b = world.random.sample(world.random.choice(words.OPPOSITES), 2)
    return _ask(world, "opposite", a=a, b=b)


def category(world: World) -> Sample:
    """Return whether a phrase names a food, an animal or a thing."""
    kinds = {"food": "a food", "pet": "an animal", "keepsake": "a thing"}
    kind, other = world.random.sample(list(kinds), 2)
    phrase = world.random.choice(values(kind, world.split))
    while phrase.endswith("dumplings"):  # "are"
        phrase = world.random.choice(values(kind, world.split))
    one, two = world.random.sample((kinds[kind], kinds[other]), 2)
    return _ask(world, "category", phrase=phrase if kind == "food" else f"a {phrase}",
                one=one, two=two, right=kinds[kind])


def listing(world: World) -> Sample:
    """Two to four words of a category; any are right."""
    (_, many), members = world.random.choice(list(CATEGORIES.items()))
    count = world.random.randint(2, 4)
    text = f"{sentence(listed(world.random.sample(members, count)))} are {many}."
    wording = world.wording(_TABLE["listing"])
    return Sample("listing", wording.format(n=words.COUNT[count - 1], many=many), text,
                  golds=(many,))


def listed(items: list[str]) -> str:
    """The items as in "a, b and c"."""
    return f"{', '.join(items[:-1])} and {items[-1]}"


def _ask(world: World, kind: str, **slots: str) -> Sample:
    row = world.random.choice(_TABLE[kind])
    return Sample(kind, sentence(world.wording(row["ask"]).format(**slots)),
                  sentence(row["answer"].format(**slots)), golds=(row["gold"].format(**slots),))


def _trade(name: str) -> dict[str, str]:
    does, tool, where = words.TRADES[name]
    return {"t": name, "does": does, "tool": tool, "where": _at(where)}


def _animal(name: str) -> dict[str, str]:
    does, where = words.ANIMALS[name]
    return {"t": name, "does": does, "where": _at(where)}


def _at(place: str) -> str:
    return f"{'on' if place in ('a farm', 'a ship', 'a hill') else 'in'} {place}"


ON_TOPIC = {f.__name__: f for f in (
    trade, animal, portrait, season, calendar,
    arithmetic, opposite, category, listing,
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
    for names, members in CATEGORIES.items():
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
