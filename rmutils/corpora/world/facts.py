"""The knowledge base: entities and facts, drawn from a seed."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache

from rmutils.corpora.world import lexicon
from rmutils.corpora.world import lexicon as words


@dataclass(frozen=True)
class Fact:
    """A subject, what is said of it, and the value."""

    subject: str
    relation: str
    value: str

    @property
    def spec(self) -> lexicon.Relation:
        return lexicon.RELATIONS[self.relation]

    @property
    def answer(self) -> str:
        """The answer to a question about this fact, a sentence."""
        return sentence(self.spec.statements[0].format(s=self.subject, v=self.value))


def _phrases(*lists: list[str]) -> list[str]:
    out = [""]
    for choices in lists:
        out = [f"{head} {word}".strip() for head in out for word in choices]
    return out


_CLOSED = {  # too few to hold some out
    "trade": list(words.TRADES), "instrument": words.INSTRUMENTS, "river": words.RIVERS,
    "day": words.DAYS, "month": words.MONTHS,
}
_OPEN = {
    "pet": lambda: _phrases(words.COLOURS, list(words.ANIMALS)),
    "food": lambda: _phrases(words.TASTES, words.CROPS, words.DISHES),
    "keepsake": lambda: _phrases(words.ADJECTIVES, words.MATERIALS, words.THINGS),
    "hoard": lambda: [f"{n} {m} {t}s under the {spot}" for n in words.NUMBERS
                      for m in words.MATERIALS for t in words.THINGS if t not in ("box", "knife")
                      for spot in words.SPOTS],
    "product": lambda: _phrases(words.COLOURS, words.CLOTHS),
    "look": lambda: [f"{a} {m} and {c} {k}" for a in words.ADJECTIVES for m in
                     ("copper", "silver", "brass", "iron", "glass", "stone", "ivory", "marble")
                     for c in words.COLOURS for k in ("wood", "leather", "crystal", "paper")],
    "year": lambda: [str(year) for year in range(1200, 1900)],
}


@cache
def values(kind: str, split: lexicon.Split) -> list[str]:
    """All value phrases of a kind in one split; closed lists (weekdays, ...) are in both."""
    return _CLOSED[kind] if kind in _CLOSED else lexicon.of_split(_OPEN[kind](), split)


class World:
    """A small world with its own people, places, objects and events."""

    outer: float | None = None

    def __init__(self, seed: int | str, split: lexicon.Split = "train"):
        self.random = random.Random(f"{split} {seed}")
        self.split = split
        self.kinds: dict[str, lexicon.Kind] = {}
        self._known: dict[lexicon.Kind, list[str]] = {kind: [] for kind in lexicon.OF_KIND}
        self.facts: dict[tuple[str, str], Fact] = {}

    def entity(self, kind: lexicon.Kind) -> str:
        """A new entity; its name. LookupError if no name is left."""
        if self._used_up(kind):
            raise LookupError(f"this world has no further name of a {kind}")
        while (name := self._name(kind)) in self.kinds:
            pass
        self.kinds[name] = kind
        self._known[kind].append(name)
        return name

    def some(self, kind: lexicon.Kind, reuse: float = 0.3) -> str:
        """A known entity with probability `reuse`, or where no name is left; else a new one."""
        known = self._known[kind]
        if known and (self.random.random() < reuse or self._used_up(kind)):
            return self.random.choice(known)
        return self.entity(kind)

    def fact(self, subject: str, relation: str) -> Fact:
        """The fact about a subject in a relation; made up if it is not known yet."""
        key = subject, relation
        if key not in self.facts:
            self.facts[key] = Fact(subject, relation, self._value(lexicon.RELATIONS[relation],
                                                                  subject))
        return self.facts[key]

    def new_fact(self, relation: str | None = None, *, avoid: Collection[str] = (),
                 reuse: float = 0.3) -> Fact:
        """A fact not known so far, about a known subject with probability `reuse`."""
        if relation and self._used_up(kind := lexicon.RELATIONS[relation].subject) and all(
                (name, relation) in self.facts for name in self._known[kind]):
            raise LookupError(f"relation {relation!r} of every {kind} is known")
        while True:
            if relation:
                spec = lexicon.RELATIONS[relation]
            elif left := [r for r in lexicon.OF_KIND[self.random.choice(list(lexicon.OF_KIND))]
                          if r.name not in avoid]:
                spec = self.random.choice(left)
            else:  # all relations of this kind are to be avoided
                continue
            subject = self.some(spec.subject, reuse)
            if (subject, spec.name) not in self.facts:
                return self.fact(subject, spec.name)

    def tell(self, fact: Fact) -> str:
        """The fact as a sentence, in a frame of the split."""
        text = self.random.choice(fact.spec.statements).format(s=fact.subject, v=fact.value)
        return sentence(self.random.choice(lexicon.TOLD[self.split]).format(text))

    def ask(self, fact: Fact) -> str:
        """A question about the fact, in a frame of the split."""
        text = self.random.choice(fact.spec.questions).format(s=fact.subject)
        return self.random.choice(lexicon.ASKED[self.split]).format(sentence(text))

    def wording(self, wordings: Sequence[str]) -> str:
        """One of several wordings; the last of them is held out."""
        return self.random.choice(wordings[:-1] if self.split == "train" else wordings[-1:])

    def filler(self) -> str:
        """A sentence that holds no fact."""
        return self.random.choice(words.FILLERS)

    def _value(self, spec: lexicon.Relation, subject: str) -> str:
        if spec.value in lexicon.OF_KIND:
            while (value := self.some(spec.value)) == subject:
                pass
            return value
        return self.random.choice(values(spec.value, self.split))

    def _used_up(self, kind: lexicon.Kind) -> bool:
        parts = {"person": (lexicon.names("first", self.split), lexicon.names("last", self.split)),
                 "place": (lexicon.names("place", self.split),),
                 "object": (lexicon.names("title", self.split), words.THINGS),
                 "event": (lexicon.names("title", self.split), words.SHOWS)}
        return len(self._known[kind]) == math.prod(map(len, parts[kind]))

    def _name(self, kind: lexicon.Kind) -> str:
        def pick(part: str) -> str:
            return self.random.choice(lexicon.names(part, self.split))

        if kind == "person":
            return f"{pick('first')} {pick('last')}"
        if kind == "place":
            return pick("place")
        if kind == "object":
            return f"the {pick('title')} {self.random.choice(words.THINGS)}"
        return f"the {pick('title')} {self.random.choice(words.SHOWS)}"


def sentence(text: str) -> str:
    """The text with its first letter in upper case, and `an` where `a` is before a vowel."""
    text = re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)
    return text[:1].upper() + text[1:]
