"""Scores of answers that do not depend on their question: what a measurement has to stand above.

The questions are drawn again and the stored answers are scored against them; no model answers.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd

from rmutils.core.results import Artifact, Compute, Stage, Tables
from rmutils.evaluation.helmet.evaluation import evaluate_stored, prompters_of, score
from rmutils.evaluation.helmet.prompts import EvaluateConfig, questions
from rmutils.models import load_model

BASELINES = Stage[Tables]("baselines", version=1)


def baselines(scores: np.ndarray, texts: np.ndarray) -> tuple[float, float]:
    """Score every answer against the other questions.

    Parameters
    ----------
    scores : ndarray
        (questions, answers): score of each answer to each question, 0 to 100.
    texts : ndarray
        (questions,): number of the text that a question is about.

    Returns
    -------
    float, float
        Of answers to questions about other texts (a shuffled context), and of the best constant
        answer, which is not scored on the question that it was given to. NaN if there is no other
        text, or no other question.

    Examples
    --------
    >>> baselines(np.array([[100, 0, 0], [0, 100, 0], [50, 50, 0]]), np.array([0, 1, 2]))
    (16.666666666666668, 25.0)
    """
    foreign, others = texts[:, None] != texts, ~np.eye(len(scores), dtype=bool)
    shuffled = scores[foreign].mean() if foreign.any() else np.nan
    constant = (scores * others).sum(0) / (len(scores) - 1) if len(scores) > 1 else [np.nan]
    return float(shuffled), float(np.max(constant))


def baselines_stored(
    model: str, config: EvaluateConfig, *, compute: Compute = "auto"
) -> tuple[pd.DataFrame, Artifact]:
    """Compare a stored evaluation with answers that do not depend on their question.

    Parameters
    ----------
    model : str
        Its evaluation must be stored; its tokenizer draws the questions again.
    config : EvaluateConfig
        Of that evaluation.
    compute : {"auto", "always", "never"}

    Returns
    -------
    DataFrame, Artifact
        A row per data set and length: `category`, `dataset`, `length`, `questions`, `texts`,
        `score`, `shuffled`, `constant` (0 to 100, see `baselines`), `commonest` (the commonest
        answer), `times` (how often it is given).
    """
    table, evaluation = evaluate_stored(model, config, compute="never")
    responses = table.drop_duplicates(["dataset", "length", "sample"]).set_index(
        ["dataset", "length", "sample"])["response"]

    def make(_: object) -> Tables:
        rows = []
        for prompter in prompters_of(load_model(model), config):
            d, asked = prompter.dataset, questions(prompter, config.samples)
            said = [responses[d.name, prompter.length, ask.sample] for ask in asked]
            full = said if prompter.chat else [f"{d.prefix} {text}" for text in said]
            scores = np.array([[np.mean([score(d, metric, text, ask.question)
                                         for metric in d.metrics]) for text in full]
                               for ask in asked])
            texts = np.array([ask.cluster for ask in asked])
            (commonest, times), = Counter(said).most_common(1)
            rows.append((d.category, d.name, prompter.length, len(asked), len({*texts}),
                         np.diag(scores).mean(), *baselines(scores, texts), commonest, times))
        return {"baselines": pd.DataFrame(rows, columns=[
            "category", "dataset", "length", "questions", "texts", "score", "shuffled",
            "constant", "commonest", "times"])}

    tables, artifact = BASELINES.obtain(config, {"evaluation": evaluation.key}, make,
                                        compute=compute, command="rmutils claims", model=model)
    return tables["baselines"], artifact
