"""Greedy answers to many prompts."""

from __future__ import annotations

from collections.abc import Sequence

from rmutils.models import LanguageModel
from rmutils.models.generation import generate


def answer(
    lm: LanguageModel,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    batch_tokens: int = 16384,
) -> list[str]:
    """Greedy answers, in the order of the prompts.

    An answer depends on its own prompt only, but for the last bits of floating-point numbers.

    Parameters
    ----------
    prompts : sequence of sequences of int
        Token ids, chat template included, as from `LanguageModel.render`.
    max_new_tokens : int
    batch_tokens : int
        Tokens held at once, as for `rmutils.models.generation.generate`.
    """
    tokens = generate(lm, prompts, max_new_tokens=max_new_tokens, batch_tokens=batch_tokens)
    return [lm.tokenizer.decode(row, skip_special_tokens=True).strip() for row in tokens]
