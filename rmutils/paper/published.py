"""From the authors' per-run head scores to the derived tables of `data/paper/`.

The raw files are those of the repository YoumiMa/RetMask (MIT, (c) 2026 YoumiMa), one JSON per
model: ``{"layer-head": [score of each successful run]}``. They are not part of this project.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from rmutils.errors import UserError
from rmutils.heads.scores import HeadScores
from rmutils.heads.sparsity import summarize
from rmutils.heads.stability import ranking_stability
from rmutils.paper.tables import (
    PUBLISHED_SCORES,
    PUBLISHED_STABILITY,
    PUBLISHED_SUMMARY,
    Schema,
)

RESAMPLES = 2000
SEED = 0
RUNS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
"""Numbers of runs of the stability table; a model takes those below its own number of runs."""
DRAWS = 50
TOP_K = 40
"""Heads compared in the stability table: as many as the paper masks in Llama-3.1."""


def derive(folder: Path) -> dict[Schema, pd.DataFrame]:
    """All derived tables from a folder of per-run scores.

    Raises
    ------
    UserError
        No JSON in `folder`, or a file that is not head scores.
    """
    files = sorted(Path(folder).glob("*.json"))
    if not files:
        raise UserError(f"{folder}: no *.json with head scores. They are in the repository "
                        f"YoumiMa/RetMask on GitHub.")
    scores = [HeadScores.from_wu_json(path) for path in files]
    makers = {PUBLISHED_SCORES: head_table, PUBLISHED_SUMMARY: summarize,
              PUBLISHED_STABILITY: stability_table}
    return {schema: pd.concat([make(s) for s in scores], ignore_index=True)
            for schema, make in makers.items()}


def write(tables: dict[Schema, pd.DataFrame], out: Path) -> list[Path]:
    """Write the derived tables as CSV with six decimals."""
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / schema.file for schema in tables]
    for path, table in zip(paths, tables.values(), strict=True):
        table.to_csv(path, index=False, float_format="%.6f", lineterminator="\n")
    return paths


def head_table(scores: HeadScores) -> pd.DataFrame:
    """One row per head: mean and standard deviation over runs, interval of the mean."""
    layer, head = np.indices(scores.shape).reshape(2, -1)
    low, high = scores.interval(0.95, resamples=RESAMPLES, seed=SEED).reshape(-1, 2).T
    return pd.DataFrame({
        "model": scores.model, "layer": layer, "head": head, "runs": len(scores.runs),
        "mean": scores.mean.ravel(), "sd": scores.runs.std(0, ddof=1).ravel(),
        "low": low, "high": high})


def stability_table(scores: HeadScores) -> pd.DataFrame:
    """Ranking from m runs, drawn without replacement, against the ranking from all runs."""
    counts = [m for m in RUNS if m < len(scores.runs)]
    table = ranking_stability(scores, counts, top_k=TOP_K, draws=DRAWS, seed=SEED)
    constants = {"model": scores.model, "draws": DRAWS, "top_k": TOP_K, "seed": SEED}
    table = table.rename(columns={"count": "runs"}).assign(**constants)
    return table[list(PUBLISHED_STABILITY.columns)]
