"""Needles lost with heads masked, and gained by a training, under variants of attention.

With 95 % intervals: needles are resampled whole, random heads and trainings, too.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from rmutils.comparisons import bootstrap_mean
from rmutils.evaluation.variants.curves import PLAIN
from rmutils.evaluation.variants.heads import TRAINED, WHOLE
from rmutils.evaluation.variants.heads_curves import COLUMNS
from rmutils.stats import percentiles

MASKED, OTHERS = "retrieval", "non-retrieval"
KEYS = ["length", "question", "place"]


def masking(needles: pd.DataFrame, base: str = PLAIN) -> pd.DataFrame:
    """Needles that masking loses, as shares of all cases.

    Returns
    -------
    DataFrame
        `variant`, `quantity`, `value`, `low`, `high`. Quantities: `found` by the whole model;
        `retrieval masked`, `others masked`: lost then; `excess`: the former less the latter;
        `excess, change`: less that of `base`, in the same cases.
    """
    cases = {name: _cases(part) for name, part in needles.groupby("variant", sort=False)}
    lost = {name: {"found": own[WHOLE], "retrieval masked": own[WHOLE] - own[MASKED],
                   "others masked": own[WHOLE] - own[OTHERS], "excess": own[OTHERS] - own[MASKED]}
            for name, own in cases.items()}
    for quantities in lost.values():
        quantities["excess, change"] = quantities["excess"] - lost[base]["excess"]
    return _summary(lost, _clusters(needles))


def training(needles: pd.DataFrame, base: str = PLAIN) -> pd.DataFrame:
    """Needles that trained models find; no rows where none were asked.

    Returns
    -------
    DataFrame
        `variant`, `quantity`, `value`, `low`, `high`. Quantities: found by `trained` models;
        `gain` over the untrained in the same cases; `gain, change`: less that of `base`.
    """
    cases = {name: _cases(part) for name, part in needles.groupby("variant", sort=False)}
    gained = {name: {"trained": own[TRAINED], "gain": own[TRAINED] - own[WHOLE]}
              for name, own in cases.items() if TRAINED in own}
    for quantities in gained.values():
        quantities["gain, change"] = quantities["gain"] - gained[base]["gain"]
    return _summary(gained, _clusters(needles))


def _cases(part: pd.DataFrame) -> dict[str, np.ndarray]:
    """(cases, draws) by subject, cases in one order."""
    return {subject: own.pivot(index=KEYS, columns="draw", values="correct").to_numpy(float)
            for subject, own in part.groupby("subject")}


def _clusters(needles: pd.DataFrame) -> np.ndarray:
    return needles[KEYS].drop_duplicates().sort_values(KEYS)["question"].to_numpy()


def _summary(found: dict[str, dict[str, np.ndarray]], clusters: np.ndarray) -> pd.DataFrame:
    rows = []
    for variant, quantities in found.items():
        for name, values in quantities.items():
            drawn = bootstrap_mean(values, clusters)
            rows.append((variant, name, drawn[0], *percentiles(drawn[1:])))
    return pd.DataFrame(rows, columns=COLUMNS)
