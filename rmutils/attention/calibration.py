"""Questions to documents as prompts, by which a variant learns about a model beforehand.

The same questions, of other seeds, are asked in the experiments.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from rmutils.core.errors import UserError
from rmutils.corpora.world.document_questions import document_question_at
from rmutils.corpora.world.questions import Chronicle, Question
from rmutils.corpora.world.samples import DRAWS, TooShort
from rmutils.models import LanguageModel
from rmutils.models.language_model import MARGIN, counter

CALIBRATION = -1
"""Seed of the questions for calibration; nobody is asked those of negative seeds."""
ANSWER_TOKENS = 32
"""Room for an answer, as in the data set `document_qa`."""


def calibration_prompts(lm: LanguageModel, count: int, tokens: int) -> list[list[int]]:
    """Return prompts of at most so many tokens, with room for an answer.

    Raises
    ------
    UserError
        The length is over the model's window, or too short for a question.
    """
    check_window(lm, tokens)
    asked = document_questions_at(lm, tokens, (0.5,), CALIBRATION)
    return [document_prompt(lm, question.prompt)
            for (question,) in itertools.islice(asked, count)]


def check_window(lm: LanguageModel, length: int) -> None:
    """Raise UserError if a length is over the window of a model."""
    if length > lm.window:
        raise UserError(f"length {length}: the window of {lm.name} has {lm.window} tokens.")


def document_questions_at(
    lm: LanguageModel, length: int, places: Sequence[float], seed: int
) -> Iterator[list[Question]]:
    """Yield questions without end, each with its document at all places.

    Worlds that ask for more room than there is are left out.

    Parameters
    ----------
    length : int
        Most tokens of prompt and answer together.
    places : sequence of float
        As for `rmutils.corpora.world.document_questions.document_question_at`.

    Raises
    ------
    UserError
        Several worlds in a row do not fit.
    """
    taken, count = len(document_prompt(lm, "")) + ANSWER_TOKENS + MARGIN, counter(lm)
    misfits = 0
    for i in itertools.count():
        try:
            moved = document_question_at(Chronicle(f"places {seed} {i}"), length - taken, count,
                                         places)
        except TooShort as error:
            misfits += 1
            if misfits == DRAWS:
                raise UserError(f"a question to documents does not fit into {length} tokens: take "
                                f"at least {taken + error.least}.") from error
            continue
        misfits = 0
        yield moved


def document_prompt(lm: LanguageModel, text: str) -> list[int]:
    """Token ids of a question, in the chat template where there is one."""
    return list(lm.render(text) if lm.chat else lm.tokenizer(f"{text}\nAnswer:")["input_ids"])
