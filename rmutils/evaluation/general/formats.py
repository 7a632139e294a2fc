"""Instructions on the form of an answer, which a program can check: the idea of IFEval.

Two of the forms are those of `rmutils.corpora.world.failure_prompts`, with its reader; there the
form alone counts, here the content that was given as well, so that no single answer fits all.

Zhou et al. (2023), "Instruction-Following Evaluation for Large Language Models".
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from functools import partial

from rmutils.corpora.world import World
from rmutils.corpora.world import lexicon as words
from rmutils.corpora.world.failure_prompts import FORMS, FailurePrompt
from rmutils.evaluation.failure_checks import FORMAT, outcome
from rmutils.evaluation.general.items import Item, different, draws, passes

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
