"""Equation 1, and the published code's version of it, for one answer.

Records of the cases of a detection, added up to scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from rouge_score.rouge_scorer import RougeScorer

from rmutils.attention.decoding import Answer
from rmutils.corpora.niah import NiahCase
from rmutils.heads.scores import HeadScores

SUCCESS_ROUGE = 0.5
"""A case counts if ROUGE-1 recall of the answer is above it (`retrieval_head_detection.py`: 50)."""
WU_OVERLAP = 0.9
"""Share of the needle's token set that the published search wants in a window."""

_ROUGE = RougeScorer(["rouge1"], use_stemmer=True)


def rouge_recall(answer: str, response: str) -> float:
    """ROUGE-1 recall of `answer` in `response`, 0 to 1."""
    return _ROUGE.score(answer, response)["rouge1"].recall


def copied(answer: Answer, prompt: Sequence[int], span: tuple[int, int]) -> np.ndarray:
    """Where each head copies a token out of `span`: its arg-max lies there on the token written.

    Returns
    -------
    ndarray of bool
        (T, layers, heads): y_t = x_j, j = arg max(a_t), j in I_k (section 2).
    """
    start, end = span
    inside = (answer.positions >= start) & (answer.positions < end)
    looked_at = np.asarray(prompt)[np.where(inside, answer.positions, 0)]
    return inside & (looked_at == answer.tokens[:, None, None])


def copy_counts(
    answer: Answer, prompt: Sequence[int], span: tuple[int, int], *, repeats: bool = False
) -> np.ndarray:
    """How many needle tokens each head copies; divided by the needle's length it is its score.

    Parameters
    ----------
    repeats : bool
        False: the overlap of two sets, so each needle token (a position of the prompt) counts once,
        as Equation 1 says. True: every copy counts, as in the published code, where scores above 1
        occur.

    Returns
    -------
    ndarray of int
        (layers, heads).
    """
    hits = copied(answer, prompt, span)
    if repeats:
        return hits.sum(0)
    return sum(((answer.positions == j) & hits).any(0).astype(int) for j in range(*span))


def wu_span(prompt: Sequence[int], needle: Sequence[int]) -> tuple[int, int]:
    """The needle's place as the published code searches for it.

    The first window of the needle's length whose tokens cover more than 90 % of the needle's
    *set* of tokens; `(-1, -1)` if there is none (`find_needle_idx` of RH).
    """
    wanted, size = set(needle), len(needle)
    for i in range(len(prompt)):
        if len(wanted & set(prompt[i : i + size])) / len(wanted) > WU_OVERLAP:
            return i, i + size
    return -1, -1


def runs_of(
    cases: Sequence[NiahCase], records: Mapping[str, dict], shape: tuple[int, int]
) -> tuple[np.ndarray, pd.DataFrame]:
    """Share of the needle that each head copied, and a table, in the order of the grid.

    Parameters
    ----------
    cases : sequence of NiahCase
    records : mapping
        Case -> what is kept of it, in the order of the runs, whatever that is.
    shape : tuple of int
        (layers, heads).

    Returns
    -------
    ndarray, DataFrame
        (cases, layers, heads), and a row per case; failed ones included in both.
    """
    table = pd.DataFrame([records[case.id] for case in cases])
    runs = np.zeros((len(table), *shape))
    counted = zip(table.pop("counts"), table["needle_tokens"], strict=True)
    for row, (counts, size) in enumerate(counted):
        for head, count in counts.items():
            layer, index = map(int, head.split("-"))
            runs[row, layer, index] = count / size
    return runs, table


def scores_of(model: str, runs: np.ndarray, table: pd.DataFrame) -> HeadScores:
    """Scores over the successful cases, from what `runs_of` returns.

    Raises
    ------
    UserError
        No case was successful.
    """
    success = table["success"].to_numpy(bool)
    return HeadScores(runs[success], model, table["needle"].to_numpy()[success], table)
