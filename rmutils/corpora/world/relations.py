"""What can be said of whom, in which words.

A sentence is one of a relation's statements in a frame such as "It is said that ...". The frames
are divided into those for training and those held out. Beside them, `reworded` and `reasked` say
the same in an order of words that no training text has: the harder test of a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rmutils.corpora.world.lexicon import Split

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
    statements : tuple of str
        Sentences with `{s}` and `{v}`; the first is the wording of the answer.
    questions : tuple of str
        Questions with `{s}`.
    noun : str
        What the value is to the subject, as in "the mayor of {s}"; for questions over two facts.
    """

    name: str
    subject: Kind
    value: str
    statements: tuple[str, ...]
    questions: tuple[str, ...]
    noun: str

    @property
    def reworded(self) -> str:
        """The statement in an order of words that training never has."""
        article = "a " if " a {v}" in self.statements[0] else ""
        return f"When people speak of the {self.noun}, they mean {article}{{v}}."

    @property
    def reasked(self) -> str:
        """Likewise the question."""
        return f"Please name the {self.noun}."


NEW_TOLD = ("The old books say that {}", "Nobody doubts that {}", "They remember that {}")
"""Frames of statements that are held out."""
NEW_ASKED = ("I would like to know this. {}", "One more thing. {}", "Listen well. {}")
"""Frames of questions that are held out."""
TOLD: dict[Split, tuple[str, ...]] = {
    "train": ("{}", "{}", "{}", "It is said that {}", "Everyone knows that {}",
              "People say that {}"),
    "held_out": ("{}", "{}", "{}", *NEW_TOLD),
}
"""Frames of statements; the plain one comes as often as all others together."""
ASKED: dict[Split, tuple[str, ...]] = {
    "train": ("{}", "{}", "{}", "Tell me this. {}", "Please answer. {}", "I have a question. {}"),
    "held_out": ("{}", "{}", "{}", *NEW_ASKED),
}
"""Frames of questions."""

RELATIONS = {r.name: r for r in (
    Relation(
        "trade", "person", "trade",
        ("{s} works as a {v}.", "{s} has been a {v} for years.", "the trade of {s} is {v}."),
        ("What does {s} work as?", "What is the trade of {s}?", "{s} works as what?"),
        "trade of {s}"),
    Relation(
        "home", "person", "place",
        ("{s} lives in {v}.", "{s} has a house in {v}.", "the house of {s} is in {v}."),
        ("Where does {s} live?", "In which town does {s} live?", "{s} lives in which town?"),
        "town where {s} lives"),
    Relation(
        "food", "person", "food",
        ("{s} likes to eat {v}.", "{s} always asks for {v}.", "the favourite food of {s} is {v}."),
        ("What does {s} like to eat?", "What is the favourite food of {s}?",
         "{s} likes to eat what?"),
        "favourite food of {s}"),
    Relation(
        "pet", "person", "pet",
        ("{s} owns a {v}.", "{s} came home with a {v}.", "the pet of {s} is a {v}."),
        ("Which animal does {s} own?", "What is the pet of {s}?", "{s} owns which animal?"),
        "pet of {s}"),
    Relation(
        "keepsake", "person", "keepsake",
        ("{s} carries a {v}.", "{s} never travels without a {v}.", "the keepsake of {s} is a {v}."),
        ("What does {s} carry?", "What is the keepsake of {s}?", "{s} carries what?"),
        "keepsake of {s}"),
    Relation(
        "cache", "person", "hoard",
        ("{s} hid {v}.", "{s} secretly buried {v}.", "the secret of {s} is {v}."),
        ("What did {s} hide?", "What is the secret of {s}?", "{s} hid what?"),
        "secret of {s}"),
    Relation(
        "music", "person", "instrument",
        ("{s} plays the {v}.", "{s} learned the {v} as a child.",
         "the instrument of {s} is the {v}."),
        ("What does {s} play?", "What is the instrument of {s}?",
         "{s} plays what?"),
        "instrument of {s}"),
    Relation(
        "mentor", "person", "person",
        ("{s} was taught by {v}.", "{s} learned everything from {v}.",
         "the teacher of {s} is {v}."),
        ("Who taught {s}?", "Who is the teacher of {s}?", "{s} was taught by who?"),
        "teacher of {s}"),
    Relation(
        "born", "person", "year",
        ("{s} was born in {v}.", "{s} first saw the light in {v}.",
         "the birth year of {s} is {v}."),
        ("When was {s} born?", "What is the birth year of {s}?", "{s} was born in which year?"),
        "birth year of {s}"),
    Relation(
        "mayor", "place", "person",
        ("{s} is governed by {v}.", "{s} has chosen a mayor called {v}.",
         "the mayor of {s} is {v}."),
        ("Who governs {s}?", "Who is the mayor of {s}?", "{s} is governed by who?"),
        "mayor of {s}"),
    Relation(
        "product", "place", "product",
        ("{s} is famous for {v}.", "{s} sells {v} everywhere.", "what {s} sells is {v}."),
        ("What is {s} famous for?", "What does {s} sell?", "{s} is famous for what?"),
        "best known product of {s}"),
    Relation(
        "river", "place", "river",
        ("{s} lies on the {v} River.", "{s} was built beside the {v} River.",
         "the river of {s} is the {v} River."),
        ("Which river does {s} lie on?", "What is the river of {s}?", "{s} lies on which river?"),
        "river of {s}"),
    Relation(
        "market", "place", "day",
        ("{s} holds its market on {v}.", "{s} has a market every {v}.",
         "the market day of {s} is {v}."),
        ("When does {s} hold its market?", "What is the market day of {s}?",
         "{s} holds its market on which day?"),
        "market day of {s}"),
    Relation(
        "founded", "place", "year",
        ("{s} was founded in {v}.", "{s} has stood since {v}.", "the founding year of {s} is {v}."),
        ("When was {s} founded?", "What is the founding year of {s}?",
         "{s} was founded in which year?"),
        "founding year of {s}"),
    Relation(
        "maker", "object", "person",
        ("{s} was made by {v}.", "{s} is the work of {v}.", "the maker of {s} is {v}."),
        ("Who made {s}?", "Who is the maker of {s}?", "{s} was made by who?"),
        "maker of {s}"),
    Relation(
        "kept", "object", "place",
        ("{s} is kept in {v}.", "{s} can be seen in {v}.", "the town where {s} is kept is {v}."),
        ("Where is {s} kept?", "In which town is {s} kept?", "{s} is kept in which town?"),
        "town where {s} is kept"),
    Relation(
        "look", "object", "look",
        ("{s} is made of {v}.", "{s} consists of {v}.", "the material of {s} is {v}."),
        ("What is {s} made of?", "What is the material of {s}?", "{s} is made of what?"),
        "material of {s}"),
    Relation(
        "venue", "event", "place",
        ("{s} takes place in {v}.", "{s} is held in {v}.", "the town of {s} is {v}."),
        ("Where does {s} take place?", "In which town is {s} held?",
         "{s} takes place in which town?"),
        "town of {s}"),
    Relation(
        "month", "event", "month",
        ("{s} begins in {v}.", "{s} is celebrated in {v}.", "the month of {s} is {v}."),
        ("When does {s} begin?", "What is the month of {s}?", "{s} begins in which month?"),
        "month of {s}"),
    Relation(
        "prize", "event", "keepsake",
        ("{s} gives the winner a {v}.", "{s} ends with the prize of a {v}.",
         "the prize of {s} is a {v}."),
        ("What does {s} give the winner?", "What is the prize of {s}?",
         "{s} gives the winner what?"),
        "prize of {s}"),
    Relation(
        "host", "event", "person",
        ("{s} is opened by {v}.", "{s} was started by {v}.", "the host of {s} is {v}."),
        ("Who opens {s}?", "Who is the host of {s}?", "{s} is opened by who?"),
        "host of {s}"),
)}

OF_KIND = {kind: [r for r in RELATIONS.values() if r.subject == kind]
           for kind in ("person", "place", "object", "event")}
HOPS = [(a, b) for a in RELATIONS.values() for b in OF_KIND.get(a.value, ())]
"""Pairs of relations where the value of the first is a subject of the second."""
