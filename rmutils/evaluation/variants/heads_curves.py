"""What stays of the ranking of heads under variants of attention, and how scores move.

With 95 % intervals: needles are resampled whole, the same ones under plain attention and a variant.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from rmutils.evaluation.variants.curves import PLAIN
from rmutils.evaluation.variants.measure import Tables
from rmutils.heads.before_after import BeforeAfter, interval, needle_weights, weighted_means
from rmutils.heads.effect import training_effect
from rmutils.heads.scores import DECIMALS, Head, HeadScores
from rmutils.stats import RESAMPLES

COLUMNS = ["variant", "quantity", "value", "low", "high"]
NONE = (np.nan, np.nan)


def retrieval_of(tables: Tables) -> list[Head]:
    """The retrieval heads, highest first."""
    return [*tables["retrieval"].itertuples(index=False, name=None)]


def scores_under(tables: Tables, variant: str) -> HeadScores:
    """Scores of all heads under a variant.

    Raises
    ------
    UserError
        No needle was found under it.
    """
    cases = tables["cases"].query("variant == @variant").drop(columns="variant")
    wide = tables["scores"].query("variant == @variant").pivot(
        index="case", columns=["layer", "head"], values="score").loc[cases["case"]]
    layers, heads = (int(wide.columns.get_level_values(i).max()) + 1 for i in (0, 1))
    success = cases["success"].to_numpy(bool)
    runs = wide.to_numpy().reshape(len(cases), layers, heads)[success]
    return HeadScores(runs, variant, cases["needle"].to_numpy()[success],
                      cases.reset_index(drop=True))


def pairs_of(tables: Tables) -> dict[str, BeforeAfter]:
    """Each variant against plain; left out are those without a needle found both times."""
    before = tables["cases"].query("variant == @PLAIN").set_index("case")["success"]
    if not before.any():
        return {}
    plain, retrieval, found = scores_under(tables, PLAIN), retrieval_of(tables), {}
    for name, part in tables["cases"].groupby("variant", sort=False):
        if name != PLAIN and (part.set_index("case")["success"] & before).any():
            found[name] = BeforeAfter(plain, scores_under(tables, name), retrieval)
    return found


def agreement(pair: BeforeAfter, *, resamples: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """How far two rankings of heads agree, on the cases that were successful both times.

    Returns
    -------
    DataFrame
        `quantity`, `value`, `low`, `high` (NaN where one needle only was found both times, from
        which there is nothing to draw). `rank correlation`: Spearman's, over all heads.
        `overlap`: share of the highest heads of plain attention, as many as there are retrieval
        heads, that are among as many highest ones of the variant.
    """
    sums, count = pair.sums("both"), len(pair.retrieval)
    weights = needle_weights(sums.shape[1], resamples, seed)
    means = weighted_means(sums, weights).round(DECIMALS)
    known = np.isfinite(means).all((0, 2))
    values = np.full((2, len(weights)), np.nan)
    before, after = means[:, known]
    values[0, known] = _correlations(before, after)
    tops = [np.argsort(-each, axis=1, kind="stable")[:, :count] for each in (before, after)]
    values[1, known] = [len(np.intersect1d(*two)) / count for two in zip(*tops, strict=True)]
    return pd.DataFrame(
        [(name, drawn[0], *(interval(drawn) if _several(sums) else NONE)) for name, drawn in
         zip(("rank correlation", "overlap"), values, strict=True)],
        columns=COLUMNS[1:])


def _several(sums: np.ndarray) -> bool:
    """Whether cases of two needles or more count."""
    return (sums[0, :, -1] > 0).sum() > 1


def _correlations(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Spearman's, row by row; 0 where all heads of a row score alike."""
    ranks = [rankdata(each, axis=1) for each in (before, after)]
    x, y = (each - each.mean(1, keepdims=True) for each in ranks)
    size = np.sqrt((x**2).sum(1) * (y**2).sum(1))
    return np.divide((x * y).sum(1), size, out=np.zeros_like(size), where=size > 0)


def agreements(tables: Tables) -> pd.DataFrame:
    """`agreement` of each variant with plain attention.

    Returns
    -------
    DataFrame
        `variant`, `quantity`, `value`, `low`, `high`; a variant without a needle found both times
        has no rows.
    """
    return pd.concat([agreement(pair).assign(variant=name)
                      for name, pair in pairs_of(tables).items()] or [_none()])[COLUMNS]


def moves(tables: Tables) -> pd.DataFrame:
    """By how much mean scores change from plain attention to each variant, on the cases that were
    successful both times.

    Returns
    -------
    DataFrame
        As from `agreements`. `quantity` is a group of `rmutils.heads.effect.training_effect`.
    """
    rows = [training_effect([pair], cases="both").query("quantity == 'change'").assign(
        variant=name, **({} if _several(pair.sums("both")) else {"low": np.nan, "high": np.nan}))
        for name, pair in pairs_of(tables).items()]
    found = pd.concat(rows or [_none()])
    return found.drop(columns="quantity").rename(columns={"group": "quantity"})[COLUMNS] \
        if rows else found


def _none() -> pd.DataFrame:
    return pd.DataFrame(columns=COLUMNS)
