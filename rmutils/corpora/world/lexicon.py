"""The world's words, invented names (training and held out), and relations with wordings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal
from zlib import crc32

from rmutils.core.files import intact, read_yaml
from rmutils.core.paths import CORPORA

Split = Literal["train", "held_out"]  # which names, values and wordings a text is made of


@cache
def table(name: str) -> dict[str, Any]:
    """Read a table of the invented world, in the order of its file."""
    file = intact(CORPORA["world"] / "tables" / f"{name}.yaml")
    return {key: _frozen(value) for key, value in read_yaml(file).items()}


def _frozen(value: Any) -> Any:
    """The same with tuples for lists: a table is read once and must not change."""
    if isinstance(value, dict):
        return {key: _frozen(part) for key, part in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


_WORDS = table("words")
TRADES: dict[str, tuple[str, ...]] = _WORDS["trades"]  # trade -> what it does, with what, and where
ANIMALS: dict[str, tuple[str, ...]] = _WORDS["animals"]
"""Animal -> its sound or habit, and its home."""
SEASONS: dict[str, tuple[str, ...]] = _WORDS["seasons"]  # season -> its sign and its weather
MONTHS_OF: dict[str, tuple[str, ...]] = _WORDS["months_of"]
OPPOSITES: tuple[tuple[str, str], ...] = _WORDS["opposites"]
MONTHS, DAYS, COUNT = _WORDS["months"], _WORDS["days"], _WORDS["count"]
NUMBERS = COUNT[1:12]
COLOURS, ADJECTIVES, MATERIALS = _WORDS["colours"], _WORDS["adjectives"], _WORDS["materials"]
THINGS, TASTES, CROPS, DISHES = (_WORDS[n] for n in ("things", "tastes", "crops", "dishes"))
CLOTHS, INSTRUMENTS, RIVERS = _WORDS["cloths"], _WORDS["instruments"], _WORDS["rivers"]
SPOTS, SHOWS = _WORDS["spots"], _WORDS["shows"]
FILLERS: tuple[str, ...] = _WORDS["fillers"]  # sentences that hold no fact anyone asks about
HELD_OUT_SHARE = 4  # one name or value phrase in so many is held out


def is_held_out(text: str) -> bool:
    """Return whether a name or phrase belongs to the held-out split, by its CRC-32."""
    return crc32(text.encode()) % HELD_OUT_SHARE == 0


def of_split(words: Sequence[str], split: Split) -> list[str]:
    """The words of one split."""
    return [word for word in words if is_held_out(word) == (split == "held_out")]


@cache
def names(kind: str, split: Split) -> list[str]:
    """All names of a kind (`first`, `last`, `place`, `title`) in one split."""
    parts = _WORDS["names"][kind]
    return of_split([head + tail for head in parts["heads"] for tail in parts["tails"]], split)


Kind = Literal["person", "place", "object", "event"]


@dataclass(frozen=True)
class Relation:
    """One relation between a subject and a value."""

    name: str
    subject: Kind
    value: str  # an entity kind, or a phrase list in `rmutils.corpora.world.facts.values`
    noun: str  # what the value is to the subject, "the mayor of {s}"; for questions over two facts
    statements: tuple[str, ...]  # with `{s}` and `{v}`; the first is the wording of the answer
    questions: tuple[str, ...]  # with `{s}`

    @property
    def reworded(self) -> str:
        """The statement in an order of words that training never has."""
        article = "a " if " a {v}" in self.statements[0] else ""
        return f"When people speak of the {self.noun}, they mean {article}{{v}}."

    @property
    def reasked(self) -> str:
        """Likewise the question."""
        return f"Please name the {self.noun}."


_TABLE = table("relations")
NEW_TOLD: tuple[str, ...] = _TABLE["told"]["held_out"]  # frames of statements that are held out
NEW_ASKED: tuple[str, ...] = _TABLE["asked"]["held_out"]  # frames of questions that are held out
TOLD: dict[Split, tuple[str, ...]] = {
    split: ("{}",) * 3 + rows for split, rows in _TABLE["told"].items()}
"""Frames of statements; the plain one comes as often as all others together."""
ASKED: dict[Split, tuple[str, ...]] = {
    split: ("{}",) * 3 + rows for split, rows in _TABLE["asked"].items()}
"""Frames of questions."""
RELATIONS = {name: Relation(name, **row) for name, row in _TABLE["relations"].items()}
"""All relations, by name: `data/corpus/world/tables/relations.yaml`."""
OF_KIND = {kind: [r for r in RELATIONS.values() if r.subject == kind]
           for kind in ("person", "place", "object", "event")}
HOPS = [(a, b) for a in RELATIONS.values() for b in OF_KIND.get(a.value, ())]
"""Pairs of relations where the value of the first is a subject of the second."""
