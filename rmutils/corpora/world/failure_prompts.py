"""Short prompts on which a model can lose track of a name, a format or its own reasoning.

Appendix H shows one example of each kind. Here each kind has an endless supply, drawn from a seed,
and a program can check every answer. One wording cannot serve all models: a teaching model knows
only the wordings of its world, which an ordinary model was never taught. So there are two
registers, over the same held-out names.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count as count_from
from itertools import pairwise
from typing import Literal

from rmutils.corpora.world import copying, knowledge, writing
from rmutils.corpora.world import lexicon as words
from rmutils.corpora.world.facts import World, sentence, values
from rmutils.corpora.world.lexicon import Kind, names, table

FailureKind = Literal["entity name", "format constraint", "reasoning chain"]
"""The kinds of things that a model "is supposed to maintain" (appendix H)."""


@dataclass(frozen=True)
class FailurePrompt:
    """A prompt, and what distinguishes a right response from a wrong one.

    Attributes
    ----------
    kind : str
        One of `FailureKind`.
    form : str
        Which of the kind's prompts it is.
    text : str
        The user turn.
    wanted : tuple of str
        For an entity name: the names that a response must hold. For a format constraint: a
        response in the right format. For a reasoning chain: the results of the steps, the last of
        which answers the question.
    """

    kind: FailureKind
    form: str
    text: str
    wanted: tuple[str, ...]


_TEXTS = table("failure_prompts")
Maker = Callable[[World], tuple[str, tuple[str, ...]]]
"""Draws the text of a prompt and what is wanted."""


def failure_prompts(count: int, seed: int | str = 0, corpus: str = "book") -> list[FailurePrompt]:
    """`count` different prompts of each kind, whose forms take turns.

    Parameters
    ----------
    count : int
    seed : int or str
        The prompts are in the order in which they are drawn from it.
    corpus : {"book", "world"}
        For whom: ordinary models or teaching models (`LanguageModel.corpus`).
    """
    prompts: list[FailurePrompt] = []
    for kind, forms in FORMS[corpus].items():
        drawn: dict[str, FailurePrompt] = {}
        for draw in count_from():
            if len(drawn) == count:
                break
            form = list(forms)[draw % len(forms)]
            text, wanted = forms[form](World(f"failure {seed} {kind} {draw}", "held_out"))
            drawn.setdefault(text, FailurePrompt(kind, form, text, wanted))
        prompts += drawn.values()
    return prompts


def _greet(world: World):
    sample = writing.greet(world)
    return sample.prompt, sample.golds


def _report(world: World):
    sample = copying.report(world)
    subject = next(iter(world.facts.values())).subject
    return sample.prompt, (subject.removeprefix("the "),)


def _turn(world: World):
    sample = copying.turn(world)
    if not sample.golds[0][0].isupper():  # a pet or a thing
        return _turn(_other(world))
    return sample.prompt, sample.golds


def _answered(maker: Callable) -> Maker:
    """A maker whose right answer shows the format."""

    def make(world: World):
        sample = maker(world)
        return sample.prompt, (sample.answer,)

    return make


def _chain(world: World):
    sample = copying.chain(world)
    first, second, *_ = world.facts.values()  # in the order of their making: the chain, then others
    if second.value == first.subject:  # the question would name its answer
        return _chain(_other(world))
    return sample.prompt, (first.value, second.value)


def _other(world: World) -> World:
    """Another world, for a prompt that is drawn again."""
    return World(world.random.random(), world.split)


def _welcome(world: World):
    person, place = world.entity("person"), world.entity("place")
    return _TEXTS["welcome"].format(person=person, place=place), (person, place)


def _introduce(world: World):
    who = _person(world)
    return _TEXTS["introduction"].format(**who), (who["person"], who["place"])


def _company(world: World):
    """After Figure 7, where a company's name and its address have to be reproduced."""
    one, two = world.random.sample(names("last", world.split), 2)
    company = f"{one} & {two} Co., Ltd"
    address = f"{world.random.randint(2, 98)} {world.entity('place')} Way"
    return _TEXTS["company"].format(company=company, address=address), (company, address)


def _record(world: World):
    who = _person(world)
    record = dict(zip(("name", "job", "town"), who.values(), strict=True))
    return _TEXTS["record"].format(**who), (json.dumps(record),)


def _score(world: World):
    """The very format of Figure 8."""
    food = world.random.choice(values("food", world.split))
    was = world.random.choice(_TEXTS["judgements"])
    return _TEXTS["score"].format(food=food, was=was), (json.dumps({"score": 5}),)


def _numbered(world: World):
    many = world.random.choice([many for _, many in knowledge.CATEGORIES])
    count = world.random.randint(3, 6)
    lines = "\n".join(f"{i + 1}. {many}" for i in range(count))
    return _TEXTS["numbered list"].format(count=words.COUNT[count - 1], many=many), (lines,)


def _journey(world: World):
    person = world.entity("person")
    return _steps(world, "journey", "place", person=person)


def _gift(world: World):
    thing = world.random.choice(words.THINGS)
    return _steps(world, "gift", "person", thing=thing)


def _steps(world: World, form: str, kind: Kind, **slots: str):
    """A chain of three or four entities, to be named in order."""
    text = _TEXTS[form]
    chain = tuple(world.entity(kind) for _ in range(world.random.randint(3, 4)))
    way = " ".join(text["step"].format(a=a, b=b, **slots) for a, b in pairwise(chain))
    return sentence(text["text"].format(first=chain[0], way=way, **slots)), chain


def _person(world: World) -> dict[str, str]:
    return {"person": world.entity("person"), "trade": world.random.choice(list(words.TRADES)),
            "place": world.entity("place")}


FORMS: dict[str, dict[FailureKind, dict[str, Maker]]] = {
    "world": {
        "entity name": {"greeting": _greet, "report": _report, "turned sentence": _turn},
        "format constraint": {
            "reversed list": _answered(copying.reverse), "listing": _answered(knowledge.listing),
            "three sentences": _answered(knowledge.portrait)},
        "reasoning chain": {"two facts": _chain},
    },
    "book": {
        "entity name": {"welcome": _welcome, "introduction": _introduce, "company": _company},
        "format constraint": {"record": _record, "score": _score, "numbered list": _numbered},
        "reasoning chain": {"journey": _journey, "gift": _gift},
    },
}
"""For whom -> kind -> form -> maker."""
