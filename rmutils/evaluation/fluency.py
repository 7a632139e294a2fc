"""Whether short texts are English of the invented world, without asking a model."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from rmutils.corpora.world import lexicon as words
from rmutils.corpora.world.instructions import ON_TOPIC, instructions, topic_words, words_of
from rmutils.corpora.world.names import names
from rmutils.corpora.world.samples import Sample

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
    """Share of a text's word trigrams that references attest.

    Names, numbers and the words of open lists count as their class, so that what nobody has said
    yet can be fluent: "Alan Branbeck owns a pink mole." Beginning and end of the text are words,
    too, so a text that breaks off loses a little. Neither truth nor repetition is looked at.

    Parameters
    ----------
    references : iterable of str
        Texts that are fluent.
    """

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
    """Whether an answer holds a word that belongs to the topic of the instruction.

    Raises
    ------
    ValueError
        The instruction is of none of the kinds `ON_TOPIC` of `rmutils.corpora.world.instructions`.
    """
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
