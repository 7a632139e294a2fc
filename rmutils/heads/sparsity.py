"""How concentrated retrieval is: measures over the mean scores of all heads.

The paper argues with "sparsity" (section 5.2) but defines no measure. These are the usual ones.
Each takes a map of scores (layers, heads), none negative, and returns a number; or maps below each
other (..., layers, heads), and returns a number for each. Where all scores of a map are 0, `gini`,
`hoyer` and `effective_heads` mean nothing and are NaN.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy.special import entr

from rmutils.heads.scores import DECIMALS, HeadScores
from rmutils.stats import RESAMPLES, percentiles


def _in_rows(mean: np.ndarray) -> np.ndarray:
    """(..., layers, heads), or the heads of one map in a row -> (..., all heads)."""
    return mean.reshape(*mean.shape[:-2], -1)


def _where_any(values: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Values of the rows in which a score is not 0, NaN of the others."""
    return np.where(x.any(-1), values, np.nan)[()]


def share_above(mean: np.ndarray, tau: float) -> np.ndarray:
    """Share of heads with a score of at least `tau`, 0 to 1."""
    return (_in_rows(mean) >= tau).mean(-1)


def share_at_zero(mean: np.ndarray) -> np.ndarray:
    """Share of heads that never copied a needle token, 0 to 1."""
    return (_in_rows(mean) == 0).mean(-1)


@np.errstate(invalid="ignore")
def gini(mean: np.ndarray) -> np.ndarray:
    """Gini coefficient: 0 if all heads score alike, towards 1 if one head has all."""
    x = np.sort(_in_rows(mean), axis=-1)
    n = x.shape[-1]
    return _where_any(x @ (2 * np.arange(1, n + 1) - n - 1) / (n * x.sum(-1)), x)


@np.errstate(invalid="ignore")
def hoyer(mean: np.ndarray) -> np.ndarray:
    """Hoyer's sparseness: 0 if all heads score alike, 1 if one head has all.

    References
    ----------
    Hoyer (2004), "Non-negative matrix factorization with sparseness constraints", JMLR 5.
    """
    x = _in_rows(mean)
    root = np.sqrt(x.shape[-1])
    return _where_any((root - x.sum(-1) / np.sqrt((x**2).sum(-1))) / (root - 1), x)


@np.errstate(invalid="ignore")
def effective_heads(mean: np.ndarray) -> np.ndarray:
    """Effective number of heads: exp of the Shannon entropy of the scores taken as shares.

    n heads with equal scores, all others at zero, give n.
    """
    x = _in_rows(mean)
    p = x / x.sum(-1, keepdims=True)
    return _where_any(np.exp(entr(p).sum(-1)), x)


BINS = ((0.0, 0.0), (0.0, 0.05), (0.05, 0.1), (0.1, 0.5), (0.5, 1.0))
"""Bins of the Japanese paper's Figure 3: exactly zero, then from each edge to the next."""


def bin_shares(mean: np.ndarray) -> list[np.ndarray]:
    """Share of heads in each of `BINS`; they add up to 1.

    The paper does not say to which bin an edge belongs. Here the lower edge does, as in its
    definition of a retrieval head (score >= tau); the last bin has no upper end.
    """
    above = [share_above(mean, low) for low, _ in BINS[2:]]
    zero = share_at_zero(mean)
    return [zero, 1 - zero - above[0], above[0] - above[1], above[1] - above[2], above[2]]


def statistics() -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """All whole-model statistics by name, each from a map of mean scores, or maps of them."""
    named = {f"heads_at_least_{tau:g}": lambda mean, tau=tau: (_in_rows(mean) >= tau).sum(-1)
             for tau in (0.05, 0.1)}  # the paper's thresholds (section 4.1)
    named |= {"mean_score": lambda mean: _in_rows(mean).mean(-1), "share_zero": share_at_zero}
    for i, (low, high) in enumerate(BINS[1:], 1):
        named[f"share_{low:g}_{high:g}"] = lambda mean, i=i: bin_shares(mean)[i]
    return named | {"gini": gini, "hoyer": hoyer, "effective_heads": effective_heads}


def summarize(scores: HeadScores, *, resamples: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """Every statistic with a 95 % bootstrap interval; all heads are resampled together.

    Returns
    -------
    DataFrame
        `model`, `runs`, `heads`, `resamples`, `seed`, `statistic`, `value`, `low`, `high`.
    """
    means = scores.bootstrap(resamples=resamples, seed=seed).round(DECIMALS)
    rows = [(scores.model, len(scores.runs), scores.mean.size, resamples, seed, name,
             float(statistic(scores.mean.round(DECIMALS))),
             *percentiles(statistic(means)))
            for name, statistic in statistics().items()]
    return pd.DataFrame(rows, columns=["model", "runs", "heads", "resamples", "seed",
                                       "statistic", "value", "low", "high"])
