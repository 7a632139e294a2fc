"""How many needles a model finds, without a look at its heads."""

from __future__ import annotations

import pandas as pd

from rmutils.evaluation.answers import answer
from rmutils.heads.detection import DetectConfig, build_cases
from rmutils.heads.scoring import SUCCESS_ROUGE, rouge_recall
from rmutils.models import LanguageModel


def find_needles(lm: LanguageModel, config: DetectConfig) -> pd.DataFrame:
    """Answer all cases of a grid; unlike `detect` it also serves models that find none.

    Returns
    -------
    DataFrame
        A row per case: `needle`, `length`, `depth`, `response`, `success` (ROUGE-1 recall of the
        needle's value above 0.5, as in detection).
    """
    cases = build_cases(lm, config)
    responses = answer(lm, [case.input_ids for case in cases],
                       max_new_tokens=config.max_new_tokens)
    return pd.DataFrame([
        {"needle": case.needle_index, "length": case.length, "depth": case.depth,
         "response": response,
         "success": rouge_recall(case.needle.real_needle, response) > SUCCESS_ROUGE}
        for case, response in zip(cases, responses, strict=True)])
