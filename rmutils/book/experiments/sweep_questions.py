"""The questions that a model is asked along a sweep of maskings."""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import pandas as pd

from rmutils.corpora.world import World
from rmutils.corpora.world.knowledge import KINDS, KNOWN
from rmutils.corpora.world.samples import Sample
from rmutils.corpora.world.tasks import task
from rmutils.evaluation.answers import answer, is_right, next_words_right
from rmutils.heads.answering import SUCCESS_ROUGE, answer_recall
from rmutils.heads.detection import DetectConfig, build_cases
from rmutils.models import LanguageModel
from rmutils.models.language_model import passages
from rmutils.stats import SHARE, draws, expansion, interval

HAYSTACK, BY_HEART, NEXT_WORDS = "haystack", "by heart", "next words"
"""Questions besides the tasks over long texts. The last is none: a model reads."""
PASSAGE, KNOWN_TOKENS = 64, 16
"""Tokens of a passage for `next words`, and how many at its beginning are not asked for."""
_UNITS = re.compile(r"(?<=[.!?])\s+(?!Label:)|\n+")
"""Between sentences and lines; an example and its label stay together."""


@dataclass(frozen=True)
class Question:
    """A prompt with a check of the answer."""

    task: str  # `haystack`, `by heart` or a key of `rmutils.corpora.world.tasks.TASKS`
    cluster: int  # questions of a task with the same number are alike and are resampled together
    prompt: Sequence[int]  # token ids, chat template included
    right: Callable[[str], bool]  # whether an answer is right


def needle_questions(lm: LanguageModel, grid: DetectConfig) -> list[Question]:
    """The cases of a grid, each right as in detection; a needle is a cluster."""
    def found(value: str, response: str) -> bool:
        return answer_recall(value, response) > SUCCESS_ROUGE

    return [Question(HAYSTACK, case.needle_index, case.input_ids,
                     partial(found, case.needle.real_needle)) for case in build_cases(lm, grid)]


def sample_questions(lm: LanguageModel, name: str, samples: Sequence[Sample]) -> list[Question]:
    """Samples as questions; each is a cluster."""
    return [Question(name, i, lm.render(sample.prompt), partial(is_right, sample))
            for i, sample in enumerate(samples)]


def task_samples(lm: LanguageModel, kind: str, count: int, length: int, seed: str) -> list[Sample]:
    """Samples of a task, in names and wordings that the teaching models have never read."""
    tokens = cache(lambda text: len(lm.tokenizer.encode(text)))
    return [task(kind, World(f"{seed} {i}", "held_out"), length, tokens) for i in range(count)]


def by_heart_samples(count: int, seed: str) -> list[Sample]:
    """Short instructions of the kinds `KNOWN`, no two alike."""
    samples: dict[str, Sample] = {}
    for i in itertools.count():
        if len(samples) == count:
            break
        sample = KINDS[KNOWN[i % len(KNOWN)]](World(f"{seed} {i}", "held_out"))
        samples.setdefault(sample.prompt, sample)
    return list(samples.values())


def ask(lm: LanguageModel, questions: Sequence[Question], max_new_tokens: int) -> pd.DataFrame:
    """Greedy answers and whether they are right."""
    rows = []
    for short in (False, True):  # in one batch, short prompts are padded to the length of long ones
        part = [q for q in questions if (q.task == BY_HEART) == short]
        responses = answer(lm, [q.prompt for q in part], max_new_tokens=max_new_tokens)
        rows += [(q.task, q.cluster, float(q.right(response)), response)
                 for q, response in zip(part, responses, strict=True)]
    table = pd.DataFrame(rows, columns=["task", "cluster", "correct", "response"])
    table.insert(1, "sample", table.groupby("task").cumcount())
    return table


def read_on(lm: LanguageModel, count: int) -> pd.DataFrame:
    """Next words of plain text, which takes neither a long context nor reasoning."""
    texts, turn = passages(lm, count, PASSAGE)
    shares = next_words_right(lm, texts, turn + KNOWN_TOKENS)
    return pd.DataFrame({"task": NEXT_WORDS, "sample": range(count), "cluster": range(count),
                         "correct": shares, "response": ""})


def chance(sample: Sample) -> float:
    """Share of the sentences of the text that would be a right answer; 0 without a text."""
    units = [unit for unit in _UNITS.split(sample.context) if unit]
    return float(np.mean([is_right(sample, unit) for unit in units])) if units else 0.0


def screen(lm: LanguageModel, samples: Mapping[str, Sequence[Sample]],
           max_new_tokens: int) -> pd.DataFrame:
    """Which tasks a model can do at all: those that are surely better than chance (`_above`)."""
    rows = []
    for name, of_task in samples.items():
        right = ask(lm, sample_questions(lm, name, of_task), max_new_tokens)["correct"]
        value, low, high = interval(right, bounds=SHARE)
        by_chance = float(np.mean([chance(sample) for sample in of_task]))
        rows.append((name, len(right), value, low, high, by_chance, _above(right, by_chance)))
    return pd.DataFrame(rows, columns=["task", "samples", "value", "low", "high", "chance",
                                       "within_reach"])


def _above(right: pd.Series, chance: float) -> bool:
    """Return whether 95 % of the means of resampled answers lie above chance."""
    value, *drawn = draws(right)
    spread = expansion(len(right)) if len(right) > 1 else 1
    lowest = np.quantile(value + (np.array(drawn) - value) / spread, 0.025)
    return bool((value if np.isnan(lowest) else lowest) > chance)
