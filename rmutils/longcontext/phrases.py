"""Nouns and names of a text: where they stand, how often, and how much they mark the text.

A large corpus needs a tagger to find its noun phrases. The invented world needs none: its common
nouns are those of its word lists, and its names and values are those of its facts.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

from rmutils.corpora.world import lexicon as words
from rmutils.corpora.world.names import names

NOUNS = frozenset((*words.THINGS, *words.CROPS, *words.DISHES, *words.ANIMALS, *words.TRADES,
                   *words.MATERIALS, *words.CLOTHS, *words.INSTRUMENTS, *words.SPOTS,
                   *words.SHOWS))
"""Noun phrases of one word."""

Counts = Callable[[str], Counter]
"""How often each phrase occurs in a text."""


def noun_counts(text: str) -> Counter:
    """How often each of `NOUNS` occurs as a whole word, in small or capital letters.

    `keys` is another word than `key`.
    """
    return Counter(word for word in re.findall(r"\w+", text.lower()) if word in NOUNS)


def name_counts(text: str) -> Counter:
    """How often each name of a person, place, object or event occurs: noun phrases of one to three
    words."""
    found: Counter = Counter()
    spoken = re.findall(r"\w+", text)
    for one, two, three in zip(spoken, [*spoken[1:], ""], [*spoken[2:], "", ""], strict=False):
        if one in _every("first") and two in _every("last"):
            found[f"{one} {two}"] += 1
        elif one in _every("place"):
            found[one] += 1
        elif one in ("the", "The") and two in _every("title") and three in _SHOWN:
            found[f"the {two} {three}"] += 1
    return found


def places(phrase: str, text: str) -> list[int]:
    """Where a phrase begins in a text, as whole words, in small or capital letters."""
    return [match.start() for match in
            re.finditer(rf"(?<!\w){re.escape(phrase)}(?!\w)", text, re.IGNORECASE)]


class TfIdf:
    """How much a phrase marks a text: its count there, times the logarithm of one over the share of
    other texts that have it.

    Each text counts as one more that has every phrase, so that no logarithm is infinite.

    Parameters
    ----------
    texts : sequence of str
        The other texts.
    counts : callable
    """

    def __init__(self, texts: Sequence[str], counts: Counts):
        self.texts = len(texts)
        self.having = Counter(phrase for text in texts for phrase in counts(text))

    def top(self, found: Counter, count: int) -> list[str]:
        """The phrases that mark a text most, given their counts there; alphabetically where they
        mark it alike."""
        return sorted(found, key=lambda phrase: (-self.weight(phrase) * found[phrase], phrase)
                      )[:count]

    def weight(self, phrase: str) -> float:
        """The second factor."""
        return math.log((1 + self.texts) / (1 + self.having[phrase]))


_SHOWN = frozenset((*words.THINGS, *words.SHOWS))


@cache
def _every(kind: str) -> frozenset[str]:
    """Names of a kind in both splits."""
    return frozenset((*names(kind, "train"), *names(kind, "held_out")))
