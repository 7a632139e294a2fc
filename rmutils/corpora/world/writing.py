"""Questions about a world's long texts, and short texts in free words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rmutils.corpora.world import lexicon as words
from rmutils.corpora.world.facts import Fact, World, sentence, values
from rmutils.corpora.world.lexicon import Split, table
from rmutils.corpora.world.lookups import NUMBER
from rmutils.corpora.world.samples import Count, Piece, Sample, fit


@dataclass(frozen=True)
class Question(Sample):
    """A question with all that is known about its answer.

    Attributes
    ----------
    kind : str
        What sort of question it is.
    before, context, after : str
        The prompt in three parts. Only `context`, the long text, is cut where a window is too
        small.
    answer : str
        A right answer, in full.
    golds : tuple of str
        What a right answer must hold.
    support : tuple of str
        Sentences of the context from which the answer follows.
    key_points : tuple of str
        The sentences that a good summary holds.
    thinking : str
        The chain of look-ups that leads to the answer; empty where there is nothing to look up.
    asked : tuple of Fact
        What an answer has to tell.
    told : tuple of (Fact, int)
        All that the context tells, each with the number of its document; 0 where there are none.
    prefix : str
        How the answer begins, if not as the data set says.

    Examples
    --------
    >>> from rmutils import Question
    >>> question = Question("host", "The host is Halto Rustar.", "Halto Rustar",
    ...                     after=" Who is the host?", golds=("Halto Rustar",))
    >>> question.prompt
    'The host is Halto Rustar. Who is the host?'
    """

    asked: tuple[Fact, ...] = ()
    told: tuple[tuple[Fact, int], ...] = ()
    prefix: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.golds, str):  # its letters are not meant
            object.__setattr__(self, "golds", (self.golds,))

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
        found = sorted((place, line) for line in self.lines if (place := context.find(line)) >= 0)
        return {line: (self.lines[line], sum(start <= place for start in starts))
                for place, line in found}


def ask_all(world: Chronicle, kind: str, before: str, afters: Sequence[str],
            build: Callable[[list[Piece]], str], more: Iterator[Piece], length: int, count: Count,
            joint: str = " ") -> list[Question]:
    """Questions about one text, which is filled up so that the longest of them fits."""
    longest = max(afters, key=count)
    sample = fit(lambda pieces: Sample(kind, before, "", build(pieces), longest), more, length,
                 count, joint)
    told = tuple(world.lines_in(sample.context).values())
    return [Question(kind, before, "", sample.context, after, told=told) for after in afters]


def with_answer(world: Chronicle, question: Question, facts: Sequence[Fact], answer: str,
                **known) -> Question:
    """A question about facts with its answer, golds and support; `known` has other fields."""
    lines = {fact: line for line, (fact, _) in reversed(world.lines_in(question.context).items())}
    return replace(question, **{
        "answer": answer, "asked": tuple(facts), "golds": tuple(f.value for f in facts),
        "support": tuple(lines[fact] for fact in facts), **known})


_TABLE = table("instructions")


def greet(world: World) -> Sample:
    """Say hello to a person."""
    person = world.entity("person")
    wording = world.wording(_TABLE["greet"])
    answer = world.random.choice(_TABLE["greetings"])
    return Sample("greet", wording.format(p=person), answer.format(p=person), golds=(person,))


def note(world: World) -> Sample:
    """Write a few lines from one person to another about an event."""
    a, b, event = (world.entity(kind) for kind in ("person", "person", "event"))
    relations = world.random.sample(("month", "venue", "prize"), world.random.randint(1, 2))
    facts = [world.fact(event, relation) for relation in relations]
    told = tuple(world.tell(fact) for fact in facts)
    wording = world.wording(_TABLE["note"])
    known = " ".join(fact.answer for fact in facts)
    closing = world.random.choice(_TABLE["closings"])
    return Sample("note", f"{wording.format(a=a, b=b, e=event)} {' '.join(told)}",
                  f"Dear {b}, do you know {event}? {known} {closing} Your friend {a}",
                  golds=(a, b, event.removeprefix("the "), *(f.value for f in facts)), support=told)


def story(world: World) -> Sample:
    """A story of a trade, an animal or a season."""
    heroes = [*words.TRADES, *words.ANIMALS]
    topic = hero = world.random.choice([*heroes, *(list(words.SEASONS) * 3)])
    lines = [world.random.choice(_TABLE["openings"])]
    if topic in words.SEASONS:
        hero = world.random.choice(heroes)
        lines.insert(0, f"It is {topic}, and {words.SEASONS[topic][0]}.")
    elif world.random.random() < 0.7:
        does = {**words.TRADES, **words.ANIMALS}[topic][0]
        lines.append(world.random.choice((f"Every day the {{hero}} {does}.",
                                          f"No one {does} like this {{hero}}.")))
    plot = world.random.choice(_TABLE["plots"])
    lines += [plot["event"], world.random.choice(plot["ways"])]
    if world.random.random() < 0.7 or len(lines) < 4:
        lines.append(world.random.choice(_TABLE["endings"]))
    slots = {**_slots(world, avoid=hero), "hero": hero,
             "adj": world.random.choice(_TABLE["heroes"])}
    about = topic if topic in words.SEASONS else f"a {topic}"
    return _written("story", world.wording(_TABLE["story"]).format(a=about), lines, slots, topic)


def two_words(world: World) -> Sample:
    """A sentence with two common words."""
    row = world.random.choice(_TABLE["two_words"])
    a, b = (world.random.choice(list(getattr(words, name.upper()))) for name in row["lists"])
    slots = {**_slots(world, avoid=a), "a": a, "b": b}
    wording = world.wording(_TABLE["sentence"]).format(a=a, b=b)
    return _written("two_words", wording, [world.random.choice(row["sentences"])], slots, a, b)


def advice(world: World) -> Sample:
    """Advice to a traveller in a season or a month."""
    season = world.random.choice(list(words.SEASONS))
    topic = world.random.choice([season, *words.MONTHS_OF[season]])
    weather = words.SEASONS[season][1]
    tip = world.random.choice(_TABLE["weather_advice"][weather])
    lines = [f"In {topic} it is {weather}, so {tip}.",
             *world.random.sample(_TABLE["tips"], world.random.randint(1, 2))]
    slots = {**_slots(world), "food": world.random.choice(values("food", world.split))}
    return _written("advice", world.wording(_TABLE["advice"]).format(t=topic), lines, slots, topic)


def poem(world: World) -> Sample:
    """Four lines about a month, of which the second and the fourth rhyme."""
    season = world.random.choice(list(words.SEASONS))
    month = world.random.choice(words.MONTHS_OF[season])
    animal = world.random.choice(list(words.ANIMALS))
    event, weather = words.SEASONS[season]
    one, two = world.random.choice(_TABLE["rhymes"])
    third = world.random.choice((f"the {animal} {words.ANIMALS[animal][0]},",
                                 f"the days are {weather} and", "in the {spot} by the {spot2}"))
    first = world.random.choice((f"In {month} {event},", f"{month} has come and {event},",
                                 f"This is {month}, and {event},"))
    lines = f"{first}\n{one},\n{third}\n{two}."
    wording = world.wording(_TABLE["poem"]).format(t=month)
    return _written("poem", wording, [lines], _slots(world), month)


def _slots(world: World, avoid: str = "") -> dict[str, str]:
    """A word of each list, none of them `avoid`."""
    spot, spot2 = world.random.sample(words.SPOTS, 2)
    pools = {"trade": words.TRADES, "animal": words.ANIMALS, "thing": words.THINGS,
             "show": words.SHOWS, "day": words.DAYS, "month": words.MONTHS}
    return {"spot": spot, "spot2": spot2,
            **{name: world.random.choice([w for w in pool if w != avoid])
               for name, pool in pools.items()}}


def _written(kind: str, prompt: str, lines: list[str], slots: dict[str, str],
             *topic: str) -> Sample:
    text = " ".join(sentence(line.format(**slots)) for line in lines)
    return Sample(kind, sentence(prompt), text, golds=topic)
