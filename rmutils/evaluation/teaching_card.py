"""A teaching model's card: tests on texts that it was not trained on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial

import numpy as np
import pandas as pd

from rmutils.core.journal import progress_bar
from rmutils.core.paths import CORPORA
from rmutils.corpora.niah import load_needles
from rmutils.corpora.world import World
from rmutils.corpora.world import lexicon as words
from rmutils.corpora.world.knowledge import ON_TOPIC, instructions, topic_words, words_of
from rmutils.corpora.world.lexicon import names
from rmutils.corpora.world.samples import Sample
from rmutils.corpora.world.tasks import ASKED, TASKS, task
from rmutils.evaluation.answers import answer, find_needles, is_right
from rmutils.heads import DetectConfig, detect, mask_heads
from rmutils.heads.answering import SUCCESS_ROUGE, answer_recall
from rmutils.heads.detection import even_depths
from rmutils.heads.scores import Head, HeadScores
from rmutils.heads.sparsity import share_above
from rmutils.models import LanguageModel
from rmutils.models.loading import trained_folder
from rmutils.stats import DIFFERENCE, SHARE, interval

_OPEN = {  # words that can stand in each other's place
    "trade": words.TRADES, "animal": words.ANIMALS, "season": words.SEASONS,
    "month": map(str.lower, words.MONTHS), "day": map(str.lower, words.DAYS),
    "number": words.COUNT, "colour": words.COLOURS, "material": words.MATERIALS,
    "thing": words.THINGS, "things": [f"{thing}s" for thing in words.THINGS],
    "taste": words.TASTES, "crop": words.CROPS, "dish": words.DISHES, "cloth": words.CLOTHS,
    "instrument": words.INSTRUMENTS, "spot": words.SPOTS, "show": words.SHOWS,
    "adjective": [*words.ADJECTIVES, *(word for pair in words.OPPOSITES for word in pair)],
    "river": map(str.lower, words.RIVERS),
}


class Fluency:
    """Share of a text's word trigrams that references attest, 0 to 1. Names, numbers and words of
    open lists count as their class: "Alan Branbeck owns a pink mole." is fluent."""

    def __init__(self, references: Iterable[str]):
        self.known = {trigram for text in references for trigram in _trigrams(text)}

    @classmethod
    def of_world(cls, count: int = 8000, seed: int | str = "fluency") -> Fluency:
        """From right answers to `count` short instructions, in the wordings of both splits."""
        samples = (*instructions(count // 2, seed), *instructions(count // 2, seed, "held_out"))
        return cls(sample.answer for sample in samples if has_sentences(sample.answer))

    def __call__(self, text: str) -> float:
        """From 0, word salad, to 1; 0 for an empty text."""
        found = _trigrams(text)
        return sum(trigram in self.known for trigram in found) / max(len(found), 1)


def has_sentences(text: str) -> bool:
    """False for a mere list, such as an answer to "Reverse this list", which is no English."""
    return bool(re.search(r"[.!?]", text))


def on_topic(sample: Sample, text: str) -> bool:
    """Return whether an answer holds a word that belongs to the topic of the instruction."""
    if sample.kind not in ON_TOPIC:
        raise ValueError(f"instructions of the kind {sample.kind!r} have no topic")
    return not topic_words(sample).isdisjoint(words_of(text))


def _trigrams(text: str) -> list[tuple[str, ...]]:
    tokens = [_word_class(token) for token in re.findall(r"\w+|[^\w\s]", text)]
    if not tokens:
        return []
    padded = ["<", *tokens, ">"]
    return list(zip(padded, padded[1:], padded[2:], strict=False))


def _word_class(word: str) -> str:
    if word.isdigit():
        return "<year>" if len(word) == 4 else "<number>"
    return _classes().get(word) or _classes().get(word.lower()) or word.lower()


@cache
def _classes() -> dict[str, str]:
    """Word -> its class; a word of several lists is in the first."""
    lists = {kind: [*names(kind, "train"), *names(kind, "held_out")]
             for kind in ("first", "last", "place", "title")} | _OPEN
    classes: dict[str, str] = {}
    for kind, members in lists.items():
        for word in members:
            classes.setdefault(word, f"<{kind}>")
    return classes


DETECTION = DetectConfig(lengths=(256, 512), depths=even_depths(5))  # of 20 needles: 200 cases
LENGTHS = (256, 512, 1024, 2048)
NEEDLES = {length: DetectConfig(lengths=(length,), depths=even_depths(10)) for length in LENGTHS}
NEEDLE_FILE = CORPORA["world"] / "needles" / "needles.jsonl"
REWORDED = DetectConfig(lengths=(512,), depths=even_depths(10), needle_set="reworded")
"""The same needles in an order of words that training never has."""
PLAIN = DetectConfig(lengths=(512,), depths=even_depths(10), needle_set="plain")
"""The same needles, asked for without the frame of words that training never has."""
SHORT = 200  # held-out short instructions that the whole and the masked model answer
RANDOM_DRAWS = 5  # how often as many non-retrieval heads are drawn; the mean over draws is reported
TASK_LENGTH, TASK_SAMPLES = 512, 40

WANTED = {
    ("needles found", "512 tokens"): (">=", 0.95),
    ("needles lost from 512 to 2048 tokens", ""): (">", 0.0),
    ("heads at or above tau", "share"): ("<=", 0.2),
    ("needles lost by masking", "retrieval heads"): (">=", 0.4),
    ("needles lost by masking", "random other heads"): ("<=", 0.15),
    ("fluency of short answers", "masked"): (">=", 0.8),
    ("short answers on topic", "masked"): (">=", 0.8),
}
"""Values that a model must reach to be used in the chapters on masking and training."""


def measure(lm: LanguageModel, tau: float) -> pd.DataFrame:
    """All scores of the card, with 95 % bootstrap intervals."""
    scores = detect(lm, DETECTION)
    retrieval = scores.select(tau=tau)
    rows = [*_heads(scores, tau), *_needles(lm, scores, retrieval),
            *_short(lm, retrieval), *_tasks(lm)]
    table = pd.DataFrame(rows, columns=["measure", "condition", "value", "low", "high", "samples"])
    table["wanted"], table["reached"] = zip(*map(_judge, rows), strict=True)
    return table


def _judge(row: tuple) -> tuple[str, str]:
    sign, bound = WANTED.get(row[:2], ("", 0.0))
    if not sign:
        return "", ""
    reached = {">=": row[2] >= bound, "<=": row[2] <= bound, ">": row[3] > bound}[sign]
    return f"{sign} {bound:g}", "yes" if reached else "no"


def _row(measure: str, condition: str, values, clusters=None) -> tuple:
    """A line of the table: a mean with its interval."""
    bounds = DIFFERENCE if "lost" in measure else SHARE
    return (measure, condition, *map(float, interval(values, clusters, bounds=bounds)), len(values))


def _heads(scores: HeadScores, tau: float) -> Iterator[tuple]:
    share = scores.statistic(partial(share_above, tau=tau))
    yield ("heads at or above tau", "share", *share, len(scores.runs))
    yield ("heads at or above tau", "count", *(scores.mean.size * end for end in share),
           len(scores.runs))


def _needles(lm: LanguageModel, scores: HeadScores, retrieval: list[Head]) -> Iterator[tuple]:
    """Needles found by length, and lost by masking at 512 tokens."""
    grid = NEEDLES[512]
    draws = [scores.select_random(len(retrieval), exclude=retrieval, seed=seed)
             for seed in range(RANDOM_DRAWS)]
    with progress_bar(f"needles of {lm.name}", len(LENGTHS) + 3 + RANDOM_DRAWS,
                      unit="grids") as advance:
        def run(config: DetectConfig, heads: Sequence[Head] = ()) -> pd.DataFrame:
            with mask_heads(lm, heads):
                found = find_needles(lm, config)
            advance(1)
            return found

        found = {length: run(config) for length, config in NEEDLES.items()}
        for length, cases in found.items():
            yield _row("needles found", f"{length} tokens", cases.success, cases.needle)
        yield _row("needles found", "512 tokens, by another needle's answer",
                   _swapped(found[512]), found[512].needle)
        for what, config in (("asked plainly", PLAIN), ("reworded", REWORDED)):
            again = run(config)
            yield _row("needles found", f"512 tokens, {what}", again.success, again.needle)
        whole, needle = found[512].success.astype(float), found[512].needle
        yield _row("needles lost from 512 to 2048 tokens", "", whole - found[2048].success, needle)
        yield _row("needles lost by masking", "retrieval heads",
                   whole - run(grid, retrieval).success, needle)
        others = np.mean([run(grid, heads).success for heads in draws], axis=0)
        yield _row("needles lost by masking", "random other heads", whole - others, needle)


def _swapped(found: pd.DataFrame) -> list[bool]:
    """Chance: would the answer to the next needle of the same relation have passed?"""
    answers = found.groupby("needle").response.first()
    golds = [needle.real_needle for needle in load_needles(NEEDLE_FILE)]
    return [answer_recall(golds[i], answers[(i + len(ASKED)) % len(golds)]) > SUCCESS_ROUGE
            for i in found.needle]


def _short(lm: LanguageModel, retrieval: list[Head]) -> Iterator[tuple]:
    """Answers to held-out short instructions: English, on topic, with what was asked for."""
    fluency, samples = Fluency.of_world(), instructions(SHORT, "card", "held_out")
    prompts = [lm.render(sample.prompt) for sample in samples]
    for who, heads in (("whole", []), ("masked", retrieval)):
        with mask_heads(lm, heads):
            answers = answer(lm, prompts, max_new_tokens=80)
        pairs = list(zip(samples, answers, strict=True))
        yield _row("fluency of short answers", who,
                   [fluency(text) for s, text in pairs if has_sentences(s.answer)])
        yield _row("short answers on topic", who,
                   [on_topic(s, text) for s, text in pairs if s.kind in ON_TOPIC])
        yield _row("short answers right", who, [is_right(s, text) for s, text in pairs])


def _tasks(lm: LanguageModel) -> Iterator[tuple]:
    """Each task over held-out texts: an answer is right if it holds all gold values."""
    for kind in TASKS:
        samples = [task(kind, World(f"card {i}", "held_out"), TASK_LENGTH,
                        lambda text: len(lm.tokenizer.encode(text))) for i in range(TASK_SAMPLES)]
        for thinking in (False, True)[: 1 + ("enable_thinking" in lm.tokenizer.chat_template)]:
            prompts = [lm.render(sample.prompt, thinking=thinking) for sample in samples]
            answers = answer(lm, prompts, max_new_tokens=160)
            right = [is_right(*pair) for pair in zip(samples, answers, strict=True)]
            yield _row(f"task: {kind}", "thinking" if thinking else f"{TASK_LENGTH} tokens", right)


def read_card(name: str, file: str = "scores.csv") -> pd.DataFrame:
    """A table of a model's card: `scores.csv` (see `measure`) or `training.csv` (the curve)."""
    return pd.read_csv(trained_folder(name) / file)
