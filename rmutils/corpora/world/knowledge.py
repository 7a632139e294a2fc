"""Short instructions and right answers, which stand for the chat logs that RetMask trains on."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from rmutils.corpora.world import lexicon as words
from rmutils.corpora.world import writing
from rmutils.corpora.world.facts import Fact, World, sentence, values
from rmutils.corpora.world.lexicon import HOPS, OF_KIND, Split, table
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


_WORDS = [*words.THINGS, *words.CROPS, *words.DISHES, *words.ANIMALS, *words.SPOTS,
          *words.ADJECTIVES]


def repeat(world: World) -> Sample:
    """Say a sentence, two sentences, words or a list of phrases again."""
    shape = world.random.choice(("fact", "facts", "filler", "words", "list"))
    text = {
        "fact": lambda: world.tell(world.new_fact()),
        "facts": lambda: " ".join(world.tell(world.new_fact()) for _ in range(2)),
        "filler": lambda: f"{world.filler()} {world.tell(world.new_fact())}",
        "words": lambda: " ".join(world.random.sample(_WORDS, world.random.randint(3, 9))),
        "list": lambda: ", ".join(_items(world, world.random.randint(2, 5))),
    }[shape]()
    wording = world.wording(_TABLE["repeat"])
    return Sample("repeat", wording.format(x=text), text, golds=(text,))


def reverse(world: World) -> Sample:
    """Put a list in reverse order."""
    items = _items(world, world.random.randint(2, 4))
    wording = world.wording(_TABLE["reverse"])
    answer = ", ".join(reversed(items))
    return Sample("reverse", wording.format(x=", ".join(items)), answer, golds=(answer,))


def quote(world: World) -> Sample:
    """Say what one of a few persons said."""
    said, say = world.wording(_TABLE["say"])
    speakers = [world.entity("person") for _ in range(world.random.randint(1, 3))]
    told = [f'{s} {said}: "{world.tell(world.new_fact())}"' for s in speakers]
    i = world.random.randrange(len(told))
    return Sample("quote", _given(world, told, f"What did {speakers[i]} {say}?"), told[i],
                  golds=(told[i].split('"')[1],), support=(told[i],))


def look_up(world: World) -> Sample:
    """Answer a question about one of one to four facts."""
    fact = world.new_fact()
    facts = [fact, *_distractors(world, fact, world.random.randint(0, 3))]
    return _looked_up(world, "look_up", facts, 1, world.ask(fact), fact.value)


def chain(world: World) -> Sample:
    """Answer a question over two facts, the value of the first being the subject of the second."""
    one, two = world.random.choice(HOPS)
    first = world.new_fact(one.name)
    second = world.fact(first.value, two.name)
    facts = [first, second]
    for spec in world.random.sample((one, two), world.random.randint(0, 2)):
        facts.append(world.fact(world.entity(spec.subject), spec.name))
    noun = two.noun.format(s="the " + one.noun.format(s=first.subject))
    question = world.wording(_TABLE["chain"]).format(
        w="Who" if two.value == "person" else "What", n=noun)
    return _looked_up(world, "chain", facts, 2, question, second.value)


def who(world: World) -> Sample:
    """Say of which person something is true."""
    relation = world.random.choice(OF_KIND["person"]).name
    facts: list[Fact] = []
    count = world.random.randint(2, 3)
    while len(facts) < count:
        fact = world.fact(world.entity("person"), relation)
        if fact.value not in [f.value for f in facts]:
            facts.append(fact)
    fact = facts[0]
    a, b = world.random.sample([f.subject for f in facts[:2]], 2)
    does = fact.answer.removeprefix(fact.subject)[1:-1]
    question = world.wording(_TABLE["who"]).format(does=does, a=a, b=b)
    return _looked_up(world, "who", facts, 1, question, fact.subject)


def complete(world: World) -> Sample:
    """Finish a sentence seen before."""
    fact = world.new_fact()
    facts = [fact, *_distractors(world, fact, world.random.randint(0, 2))]
    told = [world.tell(f) for f in facts]
    start = told[0][: told[0].rindex(fact.value)].strip()
    question = world.wording(_TABLE["complete"]).format(x=start)
    answer = told[0]
    world.random.shuffle(told)
    return Sample("complete", _given(world, told, question), answer,
                  golds=(fact.value,), support=(answer,), thinking=fact.answer)


def turn(world: World) -> Sample:
    """Say a sentence with its last name first."""
    fact = world.new_fact(world.random.choice(list(_TABLE["turned"])))
    told = world.tell(fact)
    wording = world.wording(_TABLE["turn"])
    answer = sentence(_TABLE["turned"][fact.relation].format(s=fact.subject, v=fact.value))
    return Sample("turn", wording.format(t=told, v=fact.value), answer,
                  golds=(fact.value, _bare(fact.subject)), support=(told,))


def report(world: World) -> Sample:
    """Say all that is known about one subject, and nothing about others."""
    kind = world.random.choice(list(OF_KIND))
    subject, other = world.entity(kind), world.entity(kind)
    specs = world.random.sample(OF_KIND[kind], world.random.randint(2, 3))
    facts = [world.fact(subject, spec.name) for spec in specs]
    others = [world.fact(other, spec.name) for spec in specs[: world.random.randint(0, 2)]]
    told = {fact: world.tell(fact) for fact in facts + others}
    order = world.random.sample(list(told), len(told))
    chosen = [fact for fact in order if fact.subject == subject]
    answer = " ".join(fact.answer for fact in chosen)
    question = world.wording(_TABLE["about"]).format(s=subject)
    return Sample("report", _given(world, [told[fact] for fact in order], question), answer,
                  golds=tuple(fact.value for fact in chosen),
                  support=tuple(told[fact] for fact in chosen), thinking=answer)


def _items(world: World, count: int) -> list[str]:
    """Different names or phrases of one kind."""
    kind = world.random.choice(("person", "place", "food", "keepsake", "pet", "product"))
    if kind in OF_KIND:
        return [world.entity(kind) for _ in range(count)]
    return world.random.sample(values(kind, world.split), count)


def _distractors(world: World, fact: Fact, count: int) -> list[Fact]:
    """Facts that share the relation or the subject with a fact."""
    facts = []
    others = [spec.name for spec in OF_KIND[fact.spec.subject] if spec != fact.spec]
    world.random.shuffle(others)
    for _ in range(count):
        if others and world.random.random() < 0.5:
            facts.append(world.fact(fact.subject, others.pop()))
        else:
            facts.append(world.fact(world.entity(fact.spec.subject), fact.relation))
    return facts


def _given(world: World, told: Sequence[str], question: str) -> str:
    """An instruction of given sentences and a question about them."""
    return world.wording(_TABLE["given"]).format(facts=" ".join(told), question=question)


def _looked_up(world: World, kind: str, facts: Sequence[Fact], needed: int, question: str,
               gold: str) -> Sample:
    """A question about the first `needed` facts, told with the others in a random order."""
    told = [world.tell(fact) for fact in facts]
    answers = [fact.answer for fact in facts[:needed]]
    order = world.random.sample(told, len(told))
    return Sample(kind, _given(world, order, question), answers[-1], golds=(gold,),
                  support=tuple(told[:needed]), thinking=" ".join(answers))


def _bare(name: str) -> str:
    """A name without its article."""
    return name.removeprefix("the ")


ON_TOPIC = {f.__name__: f for f in (
    trade, animal, portrait, season, calendar,
    arithmetic, opposite, category, listing,
    writing.story, writing.two_words, writing.advice, writing.poem,
)}
"""The kinds whose topic is a common word: a model that cannot copy can still keep to it."""

KINDS: dict[str, Callable[[World], Sample]] = {f.__name__: f for f in (
    repeat, reverse, quote, look_up, chain, who, complete, turn, report, writing.greet,
    writing.note,
)} | ON_TOPIC
"""The maker of each kind."""


def instruction(world: World, kind: str | None = None) -> Sample:
    """A short instruction and its answer."""
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


TOPICS = _topics()  # topic -> the words that belong to it, such as bread and oven to a baker
