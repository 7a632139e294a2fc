"""What can be said of whom, in which words.

A sentence is one of a relation's statements in a frame such as "It is said that ...". The frames
are divided into those for training and those held out. Beside them, `reworded` and `reasked` say
the same in an order of words that no training text has: the harder test of a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rmutils.corpora.world.lexicon import Split, table

Kind = Literal["person", "place", "object", "event"]


@dataclass(frozen=True)
class Relation:
    """One relation between a subject and a value.

    Attributes
    ----------
    name : str
    subject : {"person", "place", "object", "event"}
    value : str
        An entity kind, or the name of a phrase list in
        `rmutils.corpora.world.facts.values`.
    noun : str
        What the value is to the subject, as in "the mayor of {s}"; for questions over two facts.
    statements : tuple of str
        Sentences with `{s}` and `{v}`; the first is the wording of the answer.
    questions : tuple of str
        Questions with `{s}`.
    """

    name: str
    subject: Kind
    value: str
    noun: str
    statements: tuple[str, ...]
    questions: tuple[str, ...]

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
NEW_TOLD: tuple[str, ...] = _TABLE["told"]["held_out"]
"""Frames of statements that are held out."""
NEW_ASKED: tuple[str, ...] = _TABLE["asked"]["held_out"]
"""Frames of questions that are held out."""
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
