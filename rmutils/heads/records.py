"""Records of the cases of a detection, added up to scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from rmutils.corpora.niah import NiahCase
from rmutils.heads.scores import HeadScores


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
