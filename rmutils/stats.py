"""Bootstrap over clusters: intervals for means of cases that are not independent.

Strategies compared with a base on the same samples: intervals, tests, and what could be seen.

A difference is known for each sample and each training (seed), and both are chance: other samples
and other trainings would have given others. So both are resampled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from scipy.stats import norm, t

from rmutils.core.errors import UserError

RESAMPLES = 2000
LEVEL = 0.95


def cluster_bootstrap(
    values: np.ndarray, clusters: np.ndarray | None, *, resamples: int = RESAMPLES, seed: int = 0
) -> np.ndarray:
    """Means of `values` under resampling of whole clusters with replacement.

    Cases with the same needle are alike, so resampling single cases would give intervals that are
    too short.

    Parameters
    ----------
    values : ndarray
        (cases, ...).
    clusters : ndarray or None
        (cases,): labels of the groups drawn together. None: each case is its own group.

    Returns
    -------
    ndarray
        (resamples, ...).
    """
    labels = np.arange(len(values)) if clusters is None else clusters
    groups, member = np.unique(labels, return_inverse=True)
    sums = np.zeros((len(groups), math.prod(values.shape[1:])))
    np.add.at(sums, member, np.reshape(values, (len(values), -1)).astype(float))
    sizes = np.bincount(member)
    draws = np.random.default_rng(seed).multinomial(
        len(groups), np.full(len(groups), 1 / len(groups)), size=resamples)
    return ((draws @ sums) / (draws @ sizes)[:, None]).reshape(resamples, *values.shape[1:])


def percentiles(samples: np.ndarray, level: float = LEVEL) -> np.ndarray:
    """Percentile interval along the first axis; the result ends with an axis (low, high)."""
    tail = (1 - level) / 2
    return np.moveaxis(np.quantile(samples, [tail, 1 - tail], axis=0), 0, -1)


def expansion(count: int) -> float:
    """By how much a 95 % percentile interval from so many independent values is too short: at least
    two. The expanded interval of Hesterberg (2015)."""
    quantile = (1 + LEVEL) / 2
    return np.sqrt(count / (count - 1)) * t.ppf(quantile, count - 1) / norm.ppf(quantile)


POWER = 0.8
FLIPS = 9999
"""Most sign patterns of a test: with 13 clusters or fewer, all there are."""
TIE = 1e-12
"""Sums that differ by no more than this share are equal but for rounding."""
AT_ONCE = 1000
"""Patterns that are added up at once: it bounds the memory."""


def compare(
    table: pd.DataFrame, base: str, *, resamples: int = RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """Compare several strategies with a base, sample by sample.

    Parameters
    ----------
    table : DataFrame
        `strategy`, `seed`, `sample`, `score`, a row each; optionally `cluster` (samples that share
        a context) and `stratum` (tasks: the effect is the plain mean over them; a cluster lies
        within one). Samples that either of two strategies has no score for (NaN) count for neither.
    base : str
        The strategy that the others are compared with. With one seed, as a model before training,
        it stands against all seeds of the others; otherwise seeds are paired.

    Returns
    -------
    DataFrame
        A row per strategy: `strategy`, `effect` (its mean less that of the base), `low`, `high`
        (95 %, over samples and seeds), `p` (see `sign_flip_test`), `p_holm` (of this table),
        `smallest_effect`, `seeds`, `samples`.

    Raises
    ------
    ValueError
        No such base, a sample scored twice, or no common seed.
    UserError
        Fewer than two clusters in a task.
    """
    rows = []
    for strategy in table.loc[table["strategy"] != base, "strategy"].unique():
        pairs, clusters, strata = paired(table, strategy, base)
        values = pairs[..., 0] - pairs[..., 1]
        drawn = bootstrap_mean(values, clusters, strata, resamples=resamples, seed=seed)
        low, high = percentiles(drawn[1:])
        rows.append((strategy, drawn[0], low, high,
                     sign_flip_test(values, clusters, strata, seed=seed),
                     smallest_effect(low, high), values.shape[1], len(values)))
    found = pd.DataFrame(rows, columns=["strategy", "effect", "low", "high", "p",
                                        "smallest_effect", "seeds", "samples"])
    found.insert(5, "p_holm", holm(found["p"]))
    return found


def paired(
    table: pd.DataFrame, strategy: str, base: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores of two strategies side by side, from a table as for `compare`.

    Returns
    -------
    ndarray, ndarray, ndarray
        (samples, seeds, 2): of the strategy and of the base; (samples,): clusters, and strata.
    """
    places = [name for name in ("stratum", "cluster", "sample") if name in table]
    wide = table.pivot(index=places, columns=["strategy", "seed"], values="score")
    if missing := {strategy, base} - set(wide.columns.get_level_values(0)):
        raise ValueError(f"no scores of {', '.join(sorted(missing))}")
    ours, theirs = wide[strategy], wide[base]
    if theirs.shape[1] == 1:
        theirs = pd.concat([theirs] * ours.shape[1], axis="columns", keys=ours.columns)
    else:
        common = ours.columns.intersection(theirs.columns)
        if common.empty:
            raise ValueError(f"{strategy} and {base} have no seed in common")
        ours, theirs = ours[common], theirs[common]
    values = np.stack([ours.to_numpy(float), theirs.to_numpy(float)], axis=-1)
    known = np.isfinite(values).all((1, 2))
    index = wide.index[known].to_frame(index=False)
    return (values[known], index.get("cluster", index["sample"]).to_numpy(),
            index.get("stratum", pd.Series(0, index.index)).to_numpy())


def bootstrap_mean(
    values: np.ndarray, clusters: np.ndarray | None = None, strata: np.ndarray | None = None, *,
    resamples: int = RESAMPLES, seed: int = 0,
) -> np.ndarray:
    """Mean over samples and seeds; in every resample, both are drawn anew.

    Every seed is evaluated on the same samples. So a draw moves the mean twice: by other samples,
    the same for all seeds, and by other seeds on all samples. Chance that lies in a sample under a
    seed counts in both, so intervals are rather too long. With one seed, only samples are drawn,
    and the mean is of that training.

    Few values differ less from one another than those they stand for, so a percentile interval from
    few samples or seeds would be too short. Draws are spread out to make up for it: the expanded
    interval of Hesterberg (2015), here for 95 %.

    Parameters
    ----------
    values : ndarray
        (samples, seeds, ...).
    clusters : ndarray, optional
        (samples,): which are drawn together. Default: each by itself.
    strata : ndarray, optional
        (samples,): tasks. Their means are averaged; clusters are drawn within each.

    Returns
    -------
    ndarray
        (1 + resamples, ...): the mean itself, then as the bootstrap draws it.

    References
    ----------
    Hesterberg (2015), "What teachers should know about the bootstrap", American Statistician 69.
    """
    labels = np.arange(len(values)) if clusters is None else clusters
    tasks = np.zeros(len(values)) if strata is None else strata
    names = np.unique(tasks)
    states = [int(x) for x in np.random.SeedSequence(seed).generate_state(len(names) + 1)]
    of_seeds = np.mean([values[tasks == name].mean(0) for name in names], axis=0)
    moved = np.mean([
        _deviations(values[tasks == name].mean(1), labels[tasks == name], resamples, state)
        for name, state in zip(names, states[1:], strict=True)], axis=0)
    if len(of_seeds) > 1:
        moved = moved + _deviations(of_seeds, np.arange(len(of_seeds)), resamples, states[0])
    return of_seeds.mean(0) + np.concatenate([np.zeros_like(moved[:1]), moved])


def _deviations(values: np.ndarray, labels: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """By how much resampled means leave the mean, spread out for the number of clusters."""
    drawn = cluster_bootstrap(values, labels, resamples=resamples, seed=seed)
    count = len(np.unique(labels))
    if count < 2:
        raise UserError("an interval needs two or more of what is drawn anew: questions, needles, "
                        "texts or samples of each task. Ask for more of them.")
    return expansion(count) * (drawn - values.mean(0))


def sign_flip_test(
    values: np.ndarray, clusters: np.ndarray | None = None, strata: np.ndarray | None = None, *,
    flips: int = FLIPS, seed: int = 0,
) -> float:
    """Two-sided p of a mean difference: how often random signs give one as large.

    Whole clusters of samples change their signs, with the mean over seeds as their value. So the
    test is about these trainings on other samples; other trainings are in the interval only. (Signs
    of five seeds have 32 patterns, and no p below 1/16.) It is exact if there are no more patterns
    than `flips`; else p is (1 + k) / (1 + flips), with k of the drawn ones as large.

    Parameters
    ----------
    values : ndarray
        (samples, seeds): differences. Clusters and strata are as for `bootstrap_mean`.
    """
    frame = pd.DataFrame({"value": values.mean(1),
                          "cluster": np.arange(len(values)) if clusters is None else clusters,
                          "stratum": 0 if strata is None else strata})
    frame["value"] /= frame.groupby("stratum")["value"].transform("size")
    units = frame.groupby(["stratum", "cluster"])["value"].sum().to_numpy()
    exact = 2 ** len(units) <= flips
    sums = np.concatenate([*_flipped(units, flips, exact, seed)])
    large = abs(sums) >= abs(units.sum()) * (1 - TIE)
    return float(large.mean() if exact else (1 + large.sum()) / (1 + flips))


def _flipped(units: np.ndarray, flips: int, exact: bool, seed: int) -> Iterator[np.ndarray]:
    """Sums of values under all patterns of signs, or drawn ones, a part after the other."""
    patterns = np.arange(2 ** len(units)) if exact else np.arange(flips)
    generator = np.random.default_rng(seed)
    for start in range(0, len(patterns), AT_ONCE):
        part = patterns[start : start + AT_ONCE, None]
        turned = (part >> np.arange(len(units)) & 1 if exact else
                  generator.integers(0, 2, (len(part), len(units)), dtype=np.int8))
        yield units.sum() - 2 * turned @ units


def holm(p: Sequence[float]) -> np.ndarray:
    """P-values of a family of comparisons, corrected by Holm's step-down method.

    The smallest is multiplied by their number, the next by one less, and so on; none falls below
    the one before it or exceeds 1.
    """
    p = np.asarray(p, dtype=float)
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(steps, 1)
    return corrected


def smallest_effect(low: float, high: float) -> float:
    """The smallest effect that a comparison with this 95 % interval is likely to see.

    In four of five repetitions, the interval of an effect of this size leaves out zero (two-sided,
    5 %, power 0.8). Half the interval is taken as 1.96 standard errors.
    """
    return (high - low) / 2 * (1 + norm.ppf(POWER) / norm.ppf((1 + LEVEL) / 2))
