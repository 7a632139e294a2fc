"""Multiple choice with four options: the small stand-in for GPQA and MMLU-Pro.

An ordinary model reads a few sentences about the invented world and a question. A teaching model
has never seen letters in front of options, but knows the world: it is asked what everybody in it
knows, and the options are whole answers.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import partial
from typing import Literal

from rmutils.corpora.world import World
from rmutils.corpora.world import lexicon as words
from rmutils.corpora.world.facts import Fact, sentence
from rmutils.corpora.world.instructions import instruction, words_of
from rmutils.corpora.world.relations import RELATIONS
from rmutils.corpora.world.samples import Sample
from rmutils.evaluation.general.items import Item, different, draws, passes
from rmutils.evaluation.sweep_questions import KNOWN

LETTERS = "ABCD"
Form = Literal["values", "letters", "written"]
_ALIKE: list[list[str]] = [
    list(words.TRADES), *map(list, list(zip(*words.TRADES.values(), strict=True))[:2]),
    list(words.ANIMALS), [habit for habit, _ in words.ANIMALS.values()],
    list(words.SEASONS), *map(list, zip(*words.SEASONS.values(), strict=True)),
    words.MONTHS, words.DAYS, [word for pair in words.OPPOSITES for word in pair],
]
"""Lists of what can stand in each other's place in an answer."""


def reading(count: int, seed: int, *, form: Form) -> list[Item]:
    """A passage of four facts of one kind and a question about one; the values are the options.

    Parameters
    ----------
    form : {"values", "letters", "written"}
        Without the options in the prompt, the likeliest value is the answer (as in the harness's
        ARC); with them, the likeliest letter (as in its MMLU), or the letter that is written (as
        in its MMLU-Pro).
    """
    return different((_read(i % 4, draw, form)
                      for i, draw in enumerate(draws("reading", count, seed))), count)


def _read(place: int, draw: random.Random, form: Form) -> Item:
    world = World(draw.random(), "held_out")
    relation = world.random.choice(list(RELATIONS))
    facts: dict[str, Fact] = {}  # by value
    while len(facts) < len(LETTERS):
        fact = world.new_fact(relation, reuse=0)
        facts.setdefault(fact.value, fact)
    wanted, *others = world.random.sample(list(facts.values()), len(facts))
    values = [fact.value for fact in others]
    values.insert(place, wanted.value)
    prompt = f"{' '.join(map(world.tell, facts.values()))}\n\n{world.ask(wanted)}"
    if form == "values":
        return Item(relation, prompt, wanted.value, partial(_chosen, wanted.value), tuple(values))
    listed = "\n".join(f"{letter}. {value}" for letter, value in zip(LETTERS, values, strict=True))
    prompt, right = f"{prompt}\n{listed}\n\nAnswer with the letter only.", LETTERS[place]
    if form == "letters":
        return Item(relation, prompt, right, partial(_chosen, right), tuple(LETTERS))
    return Item(relation, prompt, right, partial(_written, right, tuple(values)))


def letter_of(answer: str, values: tuple[str, ...]) -> str | None:
    """The letter that an answer names: at its beginning, after "answer is", or else by the value of
    one option and of no other."""
    for pattern in (r"\W*([A-D])(?:\W*$|[.):,])", r".*answer is:? \W*([A-D])\b"):
        if found := re.match(pattern, answer, re.DOTALL):
            return found[1]
    named = [letter for letter, value in zip(LETTERS, values, strict=True) if value in answer]
    return named[0] if len(named) == 1 else None


def known(count: int, seed: int) -> list[Item]:
    """Short questions of the kinds `KNOWN` of `rmutils.evaluation.sweep_questions`; the wrong
    options are the right answer with another value."""
    return different(_known(count, seed), count)


def _known(count: int, seed: int) -> Iterator[Item]:
    made = 0
    for i, draw in enumerate(draws("known", count, seed)):
        sample = instruction(World(draw.random(), "held_out"), KNOWN[i % len(KNOWN)])
        if others := _others(sample, draw):
            place = made % 4
            options = (*others[:place], sample.answer, *others[place:])
            made += 1
            yield Item(sample.kind, sample.prompt, sample.answer,
                       partial(_chosen, sample.answer), options)


def _others(sample: Sample, draw: random.Random) -> list[str]:
    """Three answers with another value; none if the value is in no list."""
    gold, = sample.golds
    said = {*words_of(sample.prompt)}
    alike = next((values for values in _ALIKE if gold in values), [])
    free = sorted({value for value in alike if value != gold and not said & {*words_of(value)}})
    if len(free) < len(LETTERS) - 1:
        return []
    plain = re.sub(r"\b([Aa])n (?=[aeiou])", r"\1 ", sample.answer)
    value = re.compile(rf"\b{re.escape(gold)}\b", re.IGNORECASE)
    return [sentence(value.sub(other, plain, count=1))
            for other in draw.sample(free, len(LETTERS) - 1)]


def _chosen(right: str, answer: str) -> float:
    return passes(answer == right)


def _written(right: str, values: tuple[str, ...], answer: str) -> float:
    return passes(letter_of(answer, values) == right)
