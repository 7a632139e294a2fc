"""The form of a question: what is asked, and what an answer is worth."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    """A question that a program can mark.

    Attributes
    ----------
    kind : str
        Which of the task's questions it is.
    prompt : str
        The user turn.
    right : str
        A right answer, in full.
    score : callable
        What an answer is worth, 0 to 100.
    options : tuple of str
        If there are any, nothing is written: the answer is the most probable of these.
    """

    kind: str
    prompt: str
    right: str
    score: Callable[[str], float]
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
    """Sources of chance for a task, one for each question to be drawn; more than are wanted, since
    some of what is drawn was there before."""
    return (random.Random(f"{name} {seed} {i}") for i in range(20 * count))


def passes(passed: bool) -> float:
    """100 for what passes, else 0."""
    return 100.0 * passed
