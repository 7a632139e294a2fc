"""What models are asked besides long contexts: the one list of tasks.

These are not the paper's benchmarks (GPQA, MATH-500, HumanEval, MMLU-Pro, MT-Bench), which cannot
ship with a book; `rmutils.evaluation.abilities.harness` runs those. They are small tasks of the same
kinds that need no network and no judge. A teaching model knows no words but those of its invented
world, so its tasks are what it was trained on, in wordings and names that it has never read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from rmutils.core.errors import UserError
from rmutils.corpora.world import World
from rmutils.corpora.world.knowledge import KINDS, instruction
from rmutils.corpora.world.samples import Sample
from rmutils.evaluation.abilities.short_tasks import (
    Item,
    arithmetic,
    coding,
    different,
    draws,
    formats,
    known,
    passes,
    reading,
)
from rmutils.evaluation.answers import is_right


@dataclass(frozen=True)
class Task:
    """A kind of ability.

    Attributes
    ----------
    make : callable
        Its items, from how many and a seed; fewer where there are no more.
    chance : float
        What the best constant answer is worth on average, 0 to 100.
    max_new_tokens : int
        Longest answer.
    """

    make: Callable[[int, int], list[Item]]
    chance: float
    max_new_tokens: int


def short(count: int, seed: int) -> list[Item]:
    """Short instructions of the invented world, its kinds in turn."""
    kinds = list(KINDS)
    samples = (instruction(World(draw.random(), "held_out"), kinds[i % len(kinds)])
               for i, draw in enumerate(draws("short", count, seed)))
    return different((Item(s.kind, s.prompt, s.answer, partial(_right, s)) for s in samples), count)


def _right(sample: Sample, answer: str) -> float:
    return passes(is_right(sample, answer))


TASKS: dict[str, dict[str, Task]] = {
    "world": {
        "short instructions": Task(short, 0.0, 80),
        "multiple choice": Task(known, 25.0, 0),
    },
    "book": {
        "arithmetic": Task(arithmetic, 0.0, 64),
        "formats": Task(formats, 0.0, 96),
        "code": Task(coding, 0.0, 320),
        "multiple choice": Task(partial(reading, form="values"), 25.0, 0),
        "letters": Task(partial(reading, form="letters"), 25.0, 0),
        "written letters": Task(partial(reading, form="written"), 25.0, 24),
    },
}
"""Corpus of a model (`LanguageModel.corpus`) -> name -> task."""


def tasks_of(corpus: str, names: Iterable[str] = ()) -> dict[str, Task]:
    """The tasks of a corpus, or those of them that are named.

    Raises
    ------
    UserError
        It has no task of that name.
    """
    tasks = TASKS[corpus]
    names = list(names) or list(tasks)
    if unknown := [name for name in names if name not in tasks]:
        raise UserError(f"there is no task {', '.join(map(repr, unknown))} for this model. Its "
                        f"tasks: {', '.join(tasks)}.")
    return {name: tasks[name] for name in names}
