"""Short questions that a program can mark, each kind a small stand-in for a benchmark."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from rmutils.core.files import intact, read_yaml
from rmutils.core.paths import DATA
from rmutils.corpora.world import World
from rmutils.corpora.world import lexicon as words
from rmutils.corpora.world.facts import Fact, sentence
from rmutils.corpora.world.knowledge import KNOWN, instruction, words_of
from rmutils.corpora.world.lexicon import RELATIONS, names
from rmutils.corpora.world.samples import Sample
from rmutils.evaluation.abilities.sandbox import call
from rmutils.evaluation.failure_prompts import FORMAT, FORMS, FailurePrompt, outcome


@dataclass(frozen=True)
class Item:
    """A question that a program can mark."""

    kind: str  # which of the task's questions it is
    prompt: str  # the user turn
    right: str  # a right answer, in full
    score: Callable[[str], float]  # what an answer is worth, 0 to 100
    # if there are any, the answer is the most probable of these; nothing is written
    options: tuple[str, ...] = ()


def different(items: Iterable[Item], count: int) -> list[Item]:
    """The first `count` items, no two of which ask the same; fewer if there are no more."""
    found: dict[str, Item] = {}
    for item in items:
        if len(found) == count:
            break
        found.setdefault(item.prompt, item)
    return list(found.values())


def draws(name: str, count: int, seed: int) -> Iterator[random.Random]:
    """Random generators for a task's questions, more than are wanted: some come up twice."""
    return (random.Random(f"{name} {seed} {i}") for i in range(20 * count))


def passes(passed: bool) -> float:
    """100 for what passes, else 0."""
    return 100.0 * passed


_ONLY = "Answer with the number only."
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def arithmetic(count: int, seed: int) -> list[Item]:
    """Questions of five kinds in turn; what counts is the last number of an answer."""
    kinds = list(_KINDS.items())
    return different((_arithmetic_item(*kinds[i % len(kinds)], draw)
                      for i, draw in enumerate(draws("arithmetic", count, seed))), count)


def last_number(text: str) -> float | None:
    """The last number in a text; commas may stand between thousands."""
    found = _NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None


def _arithmetic_item(kind: str, make: Callable[[random.Random], tuple[str, int]],
                     draw: random.Random) -> Item:
    question, value = make(draw)
    return Item(kind, f"{question} {_ONLY}", str(value),
                lambda answer: passes(last_number(answer) == value))


def _number(draw: random.Random) -> int:
    """A number of one digit or, as often, of two."""
    return draw.choice((draw.randint(2, 9), draw.randint(11, 99)))


def _sum(draw: random.Random) -> tuple[str, int]:
    a, b = _number(draw), _number(draw)
    return f"What is {a} + {b}?", a + b


def _difference(draw: random.Random) -> tuple[str, int]:
    b, rest = _number(draw), _number(draw)
    return f"What is {b + rest} - {b}?", rest


def _product(draw: random.Random) -> tuple[str, int]:
    a, b = draw.randint(2, 9), _number(draw)
    return f"What is {a} times {b}?", a * b


def _quotient(draw: random.Random) -> tuple[str, int]:
    b, value = draw.randint(2, 9), _number(draw)
    return f"What is {b * value} divided by {b}?", value


def _two_steps(draw: random.Random) -> tuple[str, int]:
    boxes, each = draw.randint(3, 9), draw.randint(4, 12)
    gone = draw.randint(2, boxes * each - 2)
    who, thing = draw.choice(names("first", "held_out")), draw.choice(words.THINGS)
    return (f"{who} has {boxes} bags with {each} {thing}s each and gives away {gone} of the "
            f"{thing}s. How many {thing}s are left?", boxes * each - gone)


_KINDS = {"sum": _sum, "difference": _difference, "product": _product, "quotient": _quotient,
          "two steps": _two_steps}


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
    """A passage of four facts of one kind and a question about one; the values are the options."""
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
        return _choice(relation, prompt, wanted.value, values)
    listed = "\n".join(f"{letter}. {value}" for letter, value in zip(LETTERS, values, strict=True))
    prompt, right = f"{prompt}\n{listed}\n\nAnswer with the letter only.", LETTERS[place]
    if form == "letters":
        return _choice(relation, prompt, right, LETTERS)
    return Item(relation, prompt, right, lambda answer: passes(letter_of(answer, values) == right))


def _choice(kind: str, prompt: str, right: str, options: Sequence[str]) -> Item:
    return Item(kind, prompt, right, lambda answer: passes(answer == right), tuple(options))


def letter_of(answer: str, values: Sequence[str]) -> str | None:
    """The letter that an answer begins with, has after "answer is", or names by its value alone."""
    for pattern in (r"\W*([A-D])(?:\W*$|[.):,])", r".*answer is:? \W*([A-D])\b"):
        if found := re.match(pattern, answer, re.DOTALL):
            return found[1]
    named = [letter for letter, value in zip(LETTERS, values, strict=True) if value in answer]
    return named[0] if len(named) == 1 else None


def known(count: int, seed: int) -> list[Item]:
    """Short questions of the kinds `KNOWN`; wrong options are right answers with another value."""
    return different(_known(count, seed), count)


def _known(count: int, seed: int) -> Iterator[Item]:
    made = 0
    for i, draw in enumerate(draws("known", count, seed)):
        sample = instruction(World(draw.random(), "held_out"), KNOWN[i % len(KNOWN)])
        if others := _others(sample, draw):
            place = made % 4
            options = (*others[:place], sample.answer, *others[place:])
            made += 1
            yield _choice(sample.kind, sample.prompt, sample.answer, options)


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


PROBLEMS = DATA / "abilities" / "problems.yaml"
_PROMPT = '''\
Write this Python function. Answer with the code only.

```python
{begins}
    """{does} For example, {function}({arguments}) is {result!r}."""
```'''
_FENCED = re.compile(r"```[a-zA-Z]*\n(.*?)(?:```|\Z)", re.DOTALL)


def coding(count: int, seed: int) -> list[Item]:
    """The first `count` problems; there are no seeds to them."""
    problems = read_yaml(intact(PROBLEMS))
    return [_coding_item(problem) for problem in problems[:count]]


def _coding_item(problem: dict[str, Any]) -> Item:
    arguments, result = problem["example"]
    prompt = _PROMPT.format(**problem, arguments=", ".join(map(repr, arguments)), result=result)
    return Item(problem["function"], prompt, f"```python\n{problem['solution']}```",
                partial(_coding_score, problem["function"], problem["tests"]))


def code_of(answer: str, function: str) -> str:
    """The code of an answer: the first fenced block that defines the function, or all of it."""
    defines = re.compile(rf"^def {function}\b", re.MULTILINE)
    return next(filter(defines.search, _FENCED.findall(answer)), answer)


def _coding_score(function: str, tests: list[list], answer: str) -> float:
    """All calls must give what they should."""
    calls, wanted = zip(*tests, strict=True)
    return passes(call(code_of(answer, function), function, calls).values == wanted)


_TOPICS = [*words.TRADES, *words.ANIMALS, *words.THINGS]
_ENDING = "that is all I know"
_CONSTRAINT = "format constraint"


def formats(count: int, seed: int) -> list[Item]:
    """Instructions of seven forms in turn."""
    kinds = [*_WRITTEN, *_SHARED]
    return different((_make(kinds[i % len(kinds)], draw)
                      for i, draw in enumerate(draws("formats", count, seed))), count)


def _make(kind: str, draw: random.Random) -> Item:
    if kind in _SHARED:
        text, wanted = FORMS["book"][_CONSTRAINT][kind](World(draw.random(), "held_out"))
        prompt = FailurePrompt(_CONSTRAINT, kind, text, wanted)
        return Item(kind, text, wanted[0], partial(_shared, prompt))
    ask, right, check = _WRITTEN[kind]
    topic = draw.choice(_TOPICS)
    return Item(kind, ask.format(t=topic), right(f"This {topic} is old."),
                partial(_written, topic, check))


def _shared(prompt: FailurePrompt, answer: str) -> float:
    """A record must also hold the values that were given."""
    given = json.loads(prompt.wanted[0]).values() if prompt.form == "record" else ()
    return passes(outcome(prompt, answer) == FORMAT[0]
                  and all(value.lower() in answer.lower() for value in given))


def _written(topic: str, check: Callable[[str, str], bool], answer: str) -> float:
    """Whatever the form, three words at least, the topic among them."""
    text = answer.strip()
    return passes(topic in text.lower() and len(text.split()) >= 3 and check(text, topic))


def _ends(text: str, topic: str) -> bool:
    before, ending, after = text.rpartition(_ENDING)
    return bool(ending) and topic in before.lower() and not after.strip(" .!")


def _twice(text: str, topic: str) -> bool:
    return len(re.findall(rf"\b{re.escape(topic)}\b", text.lower())) == 2


_WRITTEN: dict[str, tuple[str, Callable[[str], str], Callable[[str, str], bool]]] = {
    "capitals": ("Write one sentence about a {t} in capital letters only.", str.upper,
                 lambda text, topic: text == text.upper()),
    "quotation": ("Write one sentence about a {t}. Put your whole answer in double quotation "
                  "marks.", lambda text: f'"{text}"',
                  lambda text, topic: bool(re.fullmatch(r'["“][^"“”]+["”]', text))),
    "ending": (f"Write one sentence about a {{t}}. End your answer with these words: {_ENDING}",
               lambda text: f"{text[:-1]}, {_ENDING}", _ends),
    "few words": ("Write a sentence of at most eight words that holds the word {t}.", str,
                  lambda text, topic: len(text.split()) <= 8),
    "twice": ("Write one sentence in which the word {t} occurs exactly twice.",
              lambda text: f"{text[:-1]}, and {text[0].lower()}{text[1:]}", _twice),
}
"""Form -> what is asked of a topic; how a sentence gets that form; whether an answer has it."""
_SHARED = ("record", "numbered list")
