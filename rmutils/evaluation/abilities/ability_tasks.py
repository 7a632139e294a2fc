"""The tasks besides long contexts: a registry, and this project's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from rmutils.core.errors import UserError, did_you_mean
from rmutils.core.registry import Registry
from rmutils.corpora.world import World
from rmutils.corpora.world.knowledge import KINDS, instruction
from rmutils.evaluation.abilities import short_tasks
from rmutils.evaluation.answers import is_right

Make = Callable[[int, int],
                list[short_tasks.Item]]  # (how many, seed) -> items; fewer where there are no more


@dataclass(frozen=True)
class Task:
    """A kind of ability."""

    name: str
    corpus: str  # which models have it: teaching models or others (`LanguageModel.corpus`)
    make: Make  # makes its items: see `Make`
    chance: float = 0.0  # what the best constant answer is worth on average, 0 to 100
    max_new_tokens: int = 64  # longest answer
    # answers are programs, to be run; where that is not possible, the task is skipped
    sandboxed: bool = False


TASKS: Registry[Task] = Registry("ability task", "rmutils.abilities")
"""`corpus/name` -> task; other packages register their own with `ability`."""


def ability(name: str, corpus: str, **settings: Any) -> Callable[[Make], Make]:
    """Return a decorator that registers a task, whose items the function makes."""
    def register(make: Make) -> Make:
        TASKS.add(f"{corpus}/{name}", Task(name, corpus, make, **settings))
        return make
    return register


@ability("short instructions", "world", max_new_tokens=80)
def short(count: int, seed: int) -> list[short_tasks.Item]:
    """Short instructions of the invented world, its kinds in turn."""
    kinds = list(KINDS)
    samples = (instruction(World(draw.random(), "held_out"), kinds[i % len(kinds)])
               for i, draw in enumerate(short_tasks.draws("short", count, seed)))
    return short_tasks.different((short_tasks.Item(sample.kind, sample.prompt, sample.answer,
                           lambda text, sample=sample: short_tasks.passes(is_right(sample, text)))
                      for sample in samples), count)


ability("multiple choice", "world", chance=25.0, max_new_tokens=0)(short_tasks.known)
ability("arithmetic", "book")(short_tasks.arithmetic)
ability("formats", "book", max_new_tokens=96)(short_tasks.formats)
ability("code", "book", max_new_tokens=320, sandboxed=True)(short_tasks.coding)
ability("multiple choice", "book", chance=25.0, max_new_tokens=0)(partial(short_tasks.reading,
                                                                          form="values"))
ability("letters", "book", chance=25.0, max_new_tokens=0)(partial(short_tasks.reading,
                                                                  form="letters"))
ability("written letters", "book", chance=25.0, max_new_tokens=24)(partial(short_tasks.reading,
                                                                           form="written"))
OWN = {"world": ("short instructions", "multiple choice"),
       "book": ("arithmetic", "formats", "code", "multiple choice", "letters", "written letters")}
"""Corpus -> the tasks of this project, which are asked if none are named."""
SAME_QUESTIONS = dict.fromkeys(("letters", "written letters"), "multiple choice")
"""Tasks that put the questions of another one in another way."""


def each_question_once(table: pd.DataFrame, value: str = "score",
                       task: str = "task") -> pd.DataFrame:
    """Add up tasks that put the same questions, which are then drawn together, not as if they were
    independent. The mean over the tasks that are left is that over all of them."""
    merged = table.assign(**{task: table[task].replace(SAME_QUESTIONS)})
    share = merged[task].nunique() / table[task].nunique()
    if share == 1:
        return table
    keys = [name for name in merged if name in (task, "sample", "strategy", "seed")]
    found = merged.groupby(keys, sort=False, as_index=False)[value].sum(skipna=False)
    return found.assign(**{value: share * found[value]})


def tasks_of(corpus: str, names: Iterable[str] = ()) -> dict[str, Task]:
    """The project's tasks for a corpus, or those for it that are named."""
    tasks = {task.name: task for task in TASKS.values() if task.corpus == corpus}
    names = list(names) or OWN[corpus]
    if unknown := [name for name in names if name not in tasks]:
        raise UserError(f"there is no task {', '.join(map(repr, unknown))} for this model."
                        f"{did_you_mean(unknown[0], tasks)} Its tasks: {', '.join(tasks)}.")
    return {name: tasks[name] for name in names}
