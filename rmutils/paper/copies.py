"""The published per-run scores hold copies of one another: which, and what is left without them.

The published script looks for a full stop before the place of the needle, by the token ids of
Llama 2. Other tokenizers have other ids, so nine of its ten depths put the needle at the start of
the text, and the answer, and with it the map of all heads' scores, is the same nine times.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pandas as pd

from rmutils.heads.scores import HeadScores


def map_numbers(scores: HeadScores) -> np.ndarray:
    """Number the distinct maps of a detection.

    Returns
    -------
    ndarray
        (runs,): 0 for the first run's map, the next number for each map not seen before.
    """
    known: dict[bytes, int] = {}
    return np.array([known.setdefault(run.tobytes(), len(known)) for run in scores.runs])


def each_map_once(scores: HeadScores) -> HeadScores:
    """Return the same detection with the first run of each distinct map alone."""
    _, first = np.unique(map_numbers(scores), return_index=True)
    return HeadScores(scores.runs[np.sort(first)], scores.model)


def map_table(scores: HeadScores) -> pd.DataFrame:
    """Return a row per run: `model`, `run`, `map` (its number)."""
    numbers = map_numbers(scores)
    return pd.DataFrame({"model": scores.model, "run": np.arange(len(numbers)), "map": numbers})


def stretches(maps: pd.DataFrame) -> pd.DataFrame:
    """Join consecutive runs with the same map.

    Parameters
    ----------
    maps : DataFrame
        As from `map_table`, of any number of models.

    Returns
    -------
    DataFrame
        `model`, `start` (first run), `length` (runs), `map`, a row per stretch.
    """
    rows = []
    for model, own in maps.groupby("model", sort=False):
        start = 0
        for number, same in groupby(own.sort_values("run")["map"]):
            length = len([*same])
            rows.append((model, start, length, number))
            start += length
    return pd.DataFrame(rows, columns=["model", "start", "length", "map"])
