"""A model measured under a variant of its attention: needles, documents, and short plain text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
from pydantic import Field
from torch.nn.functional import cross_entropy

from rmutils.config import Config
from rmutils.evaluation.sweep_questions import KNOWN_TOKENS, passages
from rmutils.evaluation.variants.kinds import Plain, Variant
from rmutils.evaluation.variants.questions import (
    DocumentsConfig,
    Questions,
    document_questions,
    needle_questions,
)
from rmutils.evaluation.variants.subjects import Subject
from rmutils.evaluation.variants.under import under
from rmutils.heads.detection import DetectConfig, even_depths
from rmutils.heads.masking import mask_heads
from rmutils.journal import Journal
from rmutils.models import LanguageModel
from rmutils.models.thoughts import without_thoughts
from rmutils.progress import progress_bar

Count = Annotated[int, Field(ge=1)]


class TextsConfig(Config):
    """Short plain text that the model reads: stretches of its corpus's haystack, which no model of
    this book was trained on."""

    count: Count = 16
    """How many."""
    tokens: Count = 128
    """Of each; the first 16 are not asked for."""


class VariantConfig(Config):
    """A variant, and what is measured under it; None: that is not measured."""

    variant: Variant = Plain()
    """The attention."""
    masked: tuple[tuple[int, int], ...] = ()
    """Heads (layer, head) that are switched off meanwhile."""
    needles: DetectConfig | None = DetectConfig(lengths=(256,), depths=even_depths(5), needles=8,
                                                max_new_tokens=24)
    """Needles in a haystack."""
    documents: DocumentsConfig | None = DocumentsConfig()
    """Questions to documents."""
    texts: TextsConfig | None = TextsConfig()
    """Plain text."""


Tables = dict[str, pd.DataFrame]
"""`needles`, `documents`, `texts`: those that were measured, a row per sample."""


def measure(lm: LanguageModel, config: VariantConfig, *, journal: Path | None = None) -> Tables:
    """Ask a model under a variant.

    Parameters
    ----------
    journal : Path, optional
        A file that takes each answer when it is given. What is there already, because an earlier
        run was stopped, is not asked again.

    Returns
    -------
    dict of str to DataFrame
        `needles`: `length`, `question` (number of the needle), `place` (0 is the start of the
        context, 1 its end), `recall`, `correct`, `response`, `kept` (see
        `rmutils.evaluation.variants.under.Subject`). `documents`: the same without `recall`, and
        `document` (number of the one that holds the answer), `documents` (how many there are).
        `texts`: `question` (number of the passage), `nats` (negative log-likelihood per token),
        `kept`.

    Raises
    ------
    UserError
        Variant, masked heads or lengths do not fit the model.
    """
    kept, found = Journal(journal), {}
    with under(lm, config.variant) as subject, mask_heads(lm, config.masked):
        asked = {name: make(lm, wanted) for name, make, wanted in (
            ("needles", needle_questions, config.needles),
            ("documents", document_questions, config.documents)) if wanted}
        total = sum(len(part.questions) for part in asked.values())
        total += config.texts.count if config.texts else 0
        with progress_bar(f"{lm.name}, {config.variant.kind}", total, unit="answers",
                          done=len(kept)) as advance:
            for name, part in asked.items():
                found[name] = answers(subject, name, part, kept, advance)
            if config.texts:
                found["texts"] = _reading(subject, config.texts, kept, advance)
    return found


def answers(
    subject: Subject, name: str, part: Questions, kept: Journal, advance: Callable[[float], None]
) -> pd.DataFrame:
    """Have the questions answered that are not yet, and judge all answers.

    Parameters
    ----------
    name : str
        Of these answers in the journal `kept`.

    Returns
    -------
    DataFrame
        One of the tables of `measure`.
    """
    def key(i: int) -> str:
        return f"{name} {i}"

    todo = [i for i in range(len(part.questions)) if key(i) not in kept]

    def done(index: int, tokens: list[int], share: float) -> None:
        text = subject.lm.tokenizer.decode(tokens, skip_special_tokens=True).strip()
        kept[key(todo[index])] = text, share
        advance(1)

    subject.answer([part.questions[i].prompt for i in todo], max_new_tokens=part.max_new_tokens,
                   done=done)
    rows = []
    for i, question in enumerate(part.questions):
        response, share = kept[key(i)]
        rows.append({**question.row, **question.judge(without_thoughts(response)),
                     "response": response, "kept": share})
    return pd.DataFrame(rows)


def _reading(
    subject: Subject, config: TextsConfig, kept: Journal, advance: Callable[[float], None]
) -> pd.DataFrame:
    """How improbable the tokens of short texts are to the model."""
    texts, turn = passages(subject.lm, config.count, config.tokens)
    known, rows = turn + KNOWN_TOKENS, []
    for i, text in enumerate(texts):
        if (key := f"texts {i}") not in kept:
            logits, share = subject.foresee(text, known)
            kept[key] = cross_entropy(
                logits, torch.tensor(text[known:])).item(), share
            advance(1)
        nats, share = kept[key]
        rows.append({"question": i, "nats": nats, "kept": share})
    return pd.DataFrame(rows)
