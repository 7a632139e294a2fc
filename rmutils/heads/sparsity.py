"""How concentrated retrieval is, and how many runs or needles a ranking of heads needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.special import entr
from scipy.stats import rankdata, spearmanr

from rmutils.heads.scores import DECIMALS, HeadScores
from rmutils.stats import POSITIVE, RESAMPLES, SHARE, Interval, interval_of, spread


def _in_rows(mean: np.ndarray) -> np.ndarray:
    """(..., layers, heads), or the heads of one map in a row -> (..., all heads)."""
    return mean.reshape(*mean.shape[:-2], -1)


def _where_any(values: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Values of the rows in which a score is not 0, NaN of the others."""
    return np.where(x.any(-1), values, np.nan)[()]


def share_above(mean: np.ndarray, tau: float) -> np.ndarray:
    """Share of heads with a score of at least `tau`, 0 to 1."""
    shares: np.ndarray = (_in_rows(mean) >= tau).mean(-1)
    return shares


def share_at_zero(mean: np.ndarray) -> np.ndarray:
    """Share of heads that never copied a needle token, 0 to 1."""
    shares: np.ndarray = (_in_rows(mean) == 0).mean(-1)
    return shares


@np.errstate(invalid="ignore")
def gini(mean: np.ndarray) -> np.ndarray:
    """Gini coefficient: 0 if all heads score alike, towards 1 if one head has all."""
    x = np.sort(_in_rows(mean), axis=-1)
    n = x.shape[-1]
    return _where_any(x @ (2 * np.arange(1, n + 1) - n - 1) / (n * x.sum(-1)), x)


@np.errstate(invalid="ignore")
def hoyer(mean: np.ndarray) -> np.ndarray:
    """Hoyer's sparseness: 0 if all heads score alike, 1 if one head has all. Hoyer (2004),
    "Non-negative matrix factorization with sparseness constraints", JMLR 5."""
    x = _in_rows(mean)
    root = np.sqrt(x.shape[-1])
    return _where_any((root - x.sum(-1) / np.sqrt((x**2).sum(-1))) / (root - 1), x)


@np.errstate(invalid="ignore")
def effective_heads(mean: np.ndarray) -> np.ndarray:
    """exp of the Shannon entropy of scores taken as shares: n for n equal scores, the others 0."""
    x = _in_rows(mean)
    p = x / x.sum(-1, keepdims=True)
    return _where_any(np.exp(entr(p).sum(-1)), x)


@np.errstate(invalid="ignore")
def share_of_top(mean: np.ndarray, part: float = 0.05) -> np.ndarray:
    """Share of the sum of all scores that the highest heads have, `part` of all heads, rounded."""
    x = np.sort(_in_rows(mean), axis=-1)
    return _where_any(x[..., -round(part * x.shape[-1]):].sum(-1) / x.sum(-1), x)


BINS = ((0.0, 0.0), (0.0, 0.05), (0.05, 0.1), (0.1, 0.5), (0.5, 1.0))
"""Bins of the Japanese paper's Figure 3: exactly zero, then from each edge to the next."""


def bin_shares(mean: np.ndarray) -> list[np.ndarray]:
    """Share of heads in each of `BINS`; they add up to 1. The paper does not say to which bin an
    edge belongs. Here the lower edge does, as in its definition of a retrieval head (score >= tau);
    the last bin has no upper end."""
    above = [share_above(mean, low) for low, _ in BINS[2:]]
    zero = share_at_zero(mean)
    return [zero, 1 - zero - above[0], above[0] - above[1], above[1] - above[2], above[2]]


def statistics() -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """Return all statistics of a model by name, each a function of a map of means, or of maps."""
    named: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        # the paper's thresholds (section 4.1)
        f"heads_at_least_{tau:g}": partial(_heads_at_least, tau) for tau in (0.05, 0.1)}
    named |= {"mean_score": lambda mean: _in_rows(mean).mean(-1), "share_zero": share_at_zero}
    for i, (low, high) in enumerate(BINS[1:], 1):
        named[f"share_{low:g}_{high:g}"] = partial(_bin_share, i)
    return named | {"gini": gini, "hoyer": hoyer, "effective_heads": effective_heads}


def _heads_at_least(tau: float, mean: np.ndarray) -> np.ndarray:
    found: np.ndarray = (_in_rows(mean) >= tau).sum(-1)
    return found


def _bin_share(i: int, mean: np.ndarray) -> np.ndarray:
    return bin_shares(mean)[i]


def summarize(scores: HeadScores, *, resamples: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """Every statistic with a 95 % bootstrap interval; all heads are resampled together."""
    rows = [(scores.model, len(scores.runs), scores.mean.size, resamples, seed, name,
             *scores.statistic(statistic, resamples=resamples, seed=seed, bounds=(
                 SHARE if name.startswith("share") or name in ("gini", "hoyer") else
                 (0, scores.mean.size) if "heads" in name else POSITIVE)))
            for name, statistic in statistics().items()]
    return pd.DataFrame(rows, columns=["model", "runs", "heads", "resamples", "seed",
                                       "statistic", "value", "low", "high"])


COLUMNS = ["count", "overlap", "overlap_low", "overlap_high",
           "spearman", "spearman_low", "spearman_high"]


def ranking_stability(scores: HeadScores, counts: Iterable[int], *, top_k: int, draws: int = 50,
                      seed: int = 0) -> pd.DataFrame:
    """Compare the ranking from a part of the needles (or runs) with the ranking from all."""
    runs = scores.runs.reshape(len(scores.runs), -1)
    labels = np.arange(len(runs)) if scores.clusters is None else scores.clusters
    groups = np.unique(labels)
    rng = np.random.default_rng(seed)
    full = runs.mean(0).round(DECIMALS)
    top = _top(full, top_k, rng)
    rows = []
    for count in counts:
        drawn = [np.isin(labels, rng.choice(groups, count, replace=False)) for _ in range(draws)]
        means = [runs[chosen].mean(0).round(DECIMALS) for chosen in drawn]
        overlap = [len(top & _top(mean, top_k, rng)) / len(top) for mean in means]
        spearman = [_correlation(mean, full) for mean in means]
        rows.append((count, *interval_of([float(np.mean(overlap)), *overlap]),
                     *interval_of([float(np.mean(spearman)), *spearman])))
    return pd.DataFrame(rows, columns=COLUMNS)


def recall_of_detections(scores: HeadScores, count: int, *, tau: float, resamples: int = RESAMPLES,
                         seed: int = 0) -> tuple[Interval, np.ndarray]:
    """Say how many of the retrieval heads a detection with fewer needles finds."""
    labels = np.arange(len(scores.runs)) if scores.clusters is None else scores.clusters
    needles, member = np.unique(labels, return_inverse=True)
    sums, cases = np.zeros((len(needles), scores.mean.size)), np.bincount(member)
    np.add.at(sums, member, scores.runs.reshape(len(member), -1))
    weights = np.vstack([np.ones(len(needles), int), np.random.default_rng(seed).multinomial(
        len(needles), np.full(len(needles), 1 / len(needles)), size=resamples)])
    choices = np.array(list(combinations(range(len(needles)), count)))

    def detected(drawn: np.ndarray) -> np.ndarray:
        return ((drawn @ sums / (drawn @ cases)[:, None]).round(DECIMALS) >= tau).astype(float)

    found = detected(np.eye(len(needles))[choices].sum(1))
    retrieval = detected(weights)
    with np.errstate(invalid="ignore"):  # no head reaches it, or too few needles are drawn
        shares = retrieval @ found.T / retrieval.sum(1, keepdims=True)
        times = weights[:, choices].prod(-1)
        means = (shares * times).sum(1) / times.sum(1)
    return interval_of(spread(means, len(needles)), bounds=SHARE, centred=True), shares[0]


def top_overlap(a: HeadScores, b: HeadScores, top_k: int, *, seed: int = 0) -> np.ndarray:
    """How many of the `top_k` heads of `a` are among those of `b`: (count, low, high), 95 %.
    Needles are resampled; where both have the same needles, the same ones are drawn for both."""
    tops = []
    for scores in (a, b):
        means = scores.draws(seed=seed).round(DECIMALS)
        order = np.argsort(-means.reshape(len(means), -1), axis=1, kind="stable")
        tops.append(np.where(np.isnan(means).any((1, 2))[:, None], -1, order[:, :top_k]))
    counts = [np.nan if -1 in x or -1 in y else len(np.intersect1d(x, y))
              for x, y in zip(*tops, strict=True)]
    return np.array(interval_of(counts, bounds=(0, top_k), centred=True))


def rank_correlations(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Spearman's, row by row; 0 where all heads of a row score alike."""
    ranks = [rankdata(each, axis=1) for each in (before, after)]
    x, y = (each - each.mean(1, keepdims=True) for each in ranks)
    size = np.sqrt((x**2).sum(1) * (y**2).sum(1))
    rho: np.ndarray = np.divide((x * y).sum(1), size, out=np.zeros_like(size), where=size > 0)
    return rho


def _top(mean: np.ndarray, top_k: int, rng: np.random.Generator) -> set[int]:
    """The highest heads. Ties in random order, or few runs would favour the first layers."""
    return set(np.lexsort((rng.random(mean.size), -mean))[:top_k].tolist())


def _correlation(mean: np.ndarray, full: np.ndarray) -> float:
    """Spearman's rho; 0 where all heads score alike, as in a run whose needle was not found."""
    return float(spearmanr(mean, full).statistic) if np.ptp(mean) > 0 else 0.0
