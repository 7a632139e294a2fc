"""Greedy answers to many prompts, and whether they are right."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from rmutils.corpora.world.samples import Sample
from rmutils.heads.answering import SUCCESS_ROUGE, answer_recall
from rmutils.heads.detection import DetectConfig, build_cases
from rmutils.models import LanguageModel
from rmutils.models.engine.generation import generate
from rmutils.models.language_model import without_thoughts


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
        Tokens held at once, as for `rmutils.models.engine.generation.generate`.
    """
    tokens = generate(lm, prompts, max_new_tokens=max_new_tokens, batch_tokens=batch_tokens)
    return [lm.tokenizer.decode(row, skip_special_tokens=True).strip() for row in tokens]


def find_needles(lm: LanguageModel, config: DetectConfig) -> pd.DataFrame:
    """Answer all cases of a grid; unlike `detect` it also serves models that find none.

    Returns
    -------
    DataFrame
        A row per case: `needle`, `length`, `depth`, `response`, `success` (recall of the needle's
        value above 0.5, as in detection).
    """
    cases = build_cases(lm, config)
    responses = answer(lm, [case.input_ids for case in cases],
                       max_new_tokens=config.max_new_tokens)
    return pd.DataFrame([
        {"needle": case.needle_index, "length": case.length, "depth": case.depth,
         "response": response,
         "success": answer_recall(case.needle.real_needle, response) > SUCCESS_ROUGE}
        for case, response in zip(cases, responses, strict=True)])


def is_right(sample: Sample, text: str) -> bool:
    """Return whether an answer holds all gold values, or the whole right ranking; case is ignored.

    Thoughts do not count, and a thought that never ends leaves no answer.
    """
    said = without_thoughts(text).lower()
    golds = (sample.answer,) if sample.kind == "rerank" else sample.golds
    return all(gold.lower() in said for gold in golds)
