"""HELMET's averages: samples to data sets, data sets to categories, categories to one number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from zlib import crc32

import numpy as np
import pandas as pd

from rmutils.evaluation.helmet.suite import SUITE
from rmutils.stats import POINTS, RESAMPLES, interval_of
from rmutils.stats import draws as draws_of_mean

OVERALL = "overall"


def averages(table: pd.DataFrame, suite: Mapping[str, Sequence[str]] = SUITE, *,
             resamples: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """Means of data sets, of categories, and of all, each with its interval."""
    rows = []
    for length, part in table.groupby("length"):
        rows += _of_length(int(length), part, suite, resamples, seed)
    return pd.DataFrame(rows)


def draws(table: pd.DataFrame, *, resamples: int = RESAMPLES,
          seed: int = 0) -> dict[str, np.ndarray]:
    """Value of each data set, followed by its values under resampling of texts."""
    wide = table.pivot(index=["dataset", "cluster", "sample"], columns="metric",
                       values="score").sort_index()
    scores, clusters = wide.to_numpy(float), wide.index.get_level_values("cluster").to_numpy()
    metrics = {name: wide.columns.get_indexer(sorted({*found}))
               for name, found in table.groupby("dataset")["metric"]}
    return {name: _draws(scores[rows][:, metrics[name]], clusters[rows], resamples,
                         seed + crc32(name.encode()))
            for name, rows in wide.groupby(level="dataset").indices.items()}


def samples_of(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of `evaluate` as samples with one score each."""
    keys = ["category", "dataset", "length", "sample", "cluster"]
    found = table.groupby(keys, as_index=False, sort=False)["score"].mean()
    name, length = found["dataset"].astype(str), found["length"]
    return pd.DataFrame({
        "stratum": found["category"], "cluster": name + " " + found["cluster"].astype(str),
        "sample": name + " " + length.astype(str) + " " + found["sample"].astype(str),
        "length": length, "score": found["score"]})


def _draws(scores: np.ndarray, clusters: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Means of samples x metrics, of all and of drawn clusters."""
    known = np.isfinite(scores)
    both = draws_of_mean(np.stack([np.where(known, scores, 0), known], axis=-1), clusters,
                         resamples=resamples, seed=seed)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (both[..., 0] / both[..., 1]).mean(-1)


def _of_length(length: int, part: pd.DataFrame, suite: Mapping[str, Sequence[str]], resamples: int,
               seed: int) -> list[dict]:
    found = draws(part, resamples=resamples, seed=seed)
    known = {name for names in suite.values() for name in names}
    beyond = part.loc[~part["dataset"].isin(known)].groupby("category")["dataset"].unique()
    every = {category: (*suite.get(category, ()), *beyond.get(category, ()))
             for category in dict.fromkeys((*suite, *beyond.index))}
    counts = _counts(part)
    rows, categories, lacking = [], {}, []
    for category, names in every.items():
        there = [name for name in names if name in found and np.isfinite(found[name][0])]
        rows += [_row(length, "data set", name, found[name], counts[name])
                 for name in names if name in found]
        missing = [name for name in names if name not in there]
        if there:
            categories[category] = np.mean([found[name] for name in there], axis=0)
            rows.append(_row(length, "category", category, categories[category],
                             _sum(counts[name] for name in there), missing))
            lacking += missing
        else:
            lacking.append(category)
    if counted := [value for category, value in categories.items() if category in suite]:
        rows.append(_row(length, OVERALL, OVERALL, np.mean(counted, axis=0),
                         _sum(counts.values()), lacking))
    return rows


def _counts(part: pd.DataFrame) -> dict[str, tuple[int, ...]]:
    """Samples of each data set, their texts, and how many have a metric without a score."""
    lacking = part.groupby(["dataset", "sample"])["unscored"].any()
    counts = lacking.groupby("dataset").agg(["size", "sum"])
    counts.insert(1, "texts", part.groupby("dataset")["cluster"].nunique())
    return dict(zip(counts.index, counts.itertuples(index=False, name=None), strict=True))


def _sum(counts) -> tuple[int, ...]:
    return tuple(map(sum, zip(*counts, strict=True)))


def _row(length: int, level: str, name: str, values: np.ndarray, counts: tuple[int, ...],
         missing: Sequence[str] = ()) -> dict:
    return {"length": length, "level": level, "name": name,
            **interval_of(values, bounds=POINTS)._asdict(), "samples": counts[0],
            "texts": int(counts[1]), "unscored": int(counts[2]), "missing": ", ".join(missing)}
