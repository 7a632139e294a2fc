"""How much of an answer a response has: ROUGE-1 as published, and a recall for other scripts."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Literal

from rouge_score.rouge_scorer import RougeScorer

SUCCESS_ROUGE = 0.5
"""A case counts if the recall of the answer is above it (`retrieval_head_detection.py`: 50)."""

Unit = Literal["ROUGE-1", "words", "character pairs"]
"""Units that a recall counts."""

_ROUGE = RougeScorer(["rouge1"], use_stemmer=True)
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao; Tibetan; Burmese; Khmer
    "\u3040-\u30ff\u31f0-\u31ff"  # kana
    "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")  # Chinese characters
"""Letters of scripts that put no spaces between words."""


def rouge_recall(answer: str, response: str) -> float:
    """Return the ROUGE-1 recall of `answer` in `response`, 0 to 1.

    It counts words of the letters a to z and digits, without their endings, and no others.
    """
    return float(_ROUGE.score(answer, response)["rouge1"].recall)


def unit_of(answer: str) -> Unit:
    """Return what the recall of an answer counts, which its letters decide.

    ROUGE-1 where it knows all of them. Else words; in scripts that put no spaces between words,
    pairs of neighbouring characters: most Japanese words have two. Of single characters any long
    Japanese text has many, whatever it is about.

    Examples
    --------
    >>> unit_of("seven leather chains"), unit_of("семь цепей"), unit_of("青い缶の中")
    ('ROUGE-1', 'words', 'character pairs')
    """
    letters = "".join(_words(answer))
    if letters.isascii():
        return "ROUGE-1"
    return "character pairs" if _UNSPACED.search(letters) else "words"


def answer_recall(answer: str, response: str) -> float:
    """Return the share of an answer that a response has, 0 to 1, in the units of `unit_of`.

    Examples
    --------
    >>> answer_recall("青い缶の中", "鍵は青い缶に入っています。")  # 青い and い缶 of four pairs
    0.5
    """
    unit = unit_of(answer)
    if unit == "ROUGE-1":
        return rouge_recall(answer, response)
    parts: Callable[[str], list[str]] = _words
    if unit == "character pairs":
        size = min(2, len("".join(_words(answer))))
        parts = partial(_neighbours, size=size)
    wanted, found = Counter(parts(answer)), Counter(parts(response))
    return (wanted & found).total() / wanted.total()


def _words(text: str) -> list[str]:
    """Runs of letters, marks and digits, without differences of case and width."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in plain).split()


def _neighbours(text: str, size: int) -> list[str]:
    letters = "".join(_words(text))
    return [letters[i : i + size] for i in range(len(letters) - size + 1)]
