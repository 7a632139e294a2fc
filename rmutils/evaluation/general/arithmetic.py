"""Arithmetic with whole numbers, drawn from a seed: the small stand-in for MATH-500."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import partial

from rmutils.corpora.world import lexicon as words
from rmutils.corpora.world.names import names
from rmutils.evaluation.general.items import Item, different, draws, passes

_ONLY = "Answer with the number only."
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def arithmetic(count: int, seed: int) -> list[Item]:
    """Questions of five kinds in turn; what counts is the last number of an answer."""
    kinds = list(_KINDS.items())
    return different((_item(*kinds[i % len(kinds)], draw)
                      for i, draw in enumerate(draws("arithmetic", count, seed))), count)


def last_number(text: str) -> float | None:
    """The last number in a text; commas may stand between thousands."""
    found = _NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None


def _item(kind: str, make: Callable[[random.Random], tuple[str, int]], draw: random.Random) -> Item:
    question, value = make(draw)
    return Item(kind, f"{question} {_ONLY}", str(value), partial(_score, value))


def _score(value: int, answer: str) -> float:
    return passes(last_number(answer) == value)


def _number(draw: random.Random) -> int:
    """Of one digit or of two, as often."""
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
