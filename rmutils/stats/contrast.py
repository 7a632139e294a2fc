"""Comparisons of what was measured on the same units: effect, interval, p, smallest effect."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from rmutils.core.errors import UserError
from rmutils.stats.corrections import holm, smallest_effect, smallest_p
from rmutils.stats.intervals import ANY, FEW, KEPT, LEVEL, TIE, Array, Bounds, Interval, interval

FLIPS = 9999  # most sign patterns of a test: with 13 clusters or fewer, all there are
AT_ONCE = 1000  # patterns that are added up at once: it bounds the memory


class Contrast(NamedTuple):
    """A mean difference with its 95 % interval, p, and what it rests on."""

    value: Any
    low: Any
    high: Any
    p: float  # by `sign_flip_test`; not yet corrected
    clusters: int
    seeds: int

    @property
    def interval(self) -> Interval:
        """The difference with its ends."""
        return Interval(self.value, self.low, self.high)

    @property
    def smallest_effect(self) -> float:
        """The smallest difference that is likely to be detected."""
        return smallest_effect(self.low, self.high)

    @property
    def columns(self) -> dict[str, float]:
        """`value`, `low`, `high` and `p`, for a table."""
        return {"value": self.value, "low": self.low, "high": self.high, "p": self.p}


def contrast(differences: npt.ArrayLike, clusters: npt.ArrayLike | None = None,
             strata: npt.ArrayLike | None = None, *, bounds: Bounds = ANY,
             seed: int = 0) -> Contrast:
    """Compare two conditions by their differences on the same units, (units,) or (units, seeds).
    The interval allows for other units and other seeds, p for other units only."""
    values = np.asarray(differences, dtype=float)
    table = values if values.ndim > 1 else values[:, None]
    tasks, groups = (part if part is None else np.asarray(part) for part in (strata, clusters))
    kept = np.arange(len(table)) if groups is None else groups
    many = len({*(zip(tasks, kept, strict=True) if tasks is not None else kept)})
    found = interval(table, groups, tasks, seeds=True, bounds=bounds, seed=seed)
    return Contrast(*found, sign_flip_test(table, groups, tasks, seed=seed), many, table.shape[1])


def compare(table: pd.DataFrame, base: str, *, bounds: Bounds = ANY, seed: int = 0) -> pd.DataFrame:
    """Compare several strategies with a base, sample by sample.

    `table` has the columns `strategy`, `seed`, `sample`, `score`, and perhaps `cluster` (samples
    that share a context) and `stratum` (tasks, over which the effect is the plain mean). A base
    with one seed, as a model before training, stands against all seeds of the others; otherwise
    seeds are paired. In the result, `p` is NaN where so few clusters cannot reach 0.05.
    """
    rows = []
    for strategy in table.loc[table["strategy"] != base, "strategy"].unique():
        pairs, clusters, strata = paired(table, strategy, base)
        values = pairs[..., 0] - pairs[..., 1]
        one = contrast(values, clusters, strata, seed=seed)
        if np.isnan(one.low):
            raise UserError("an interval needs two or more of what is drawn: questions, needles, "
                            "texts or samples of each task. Ask for more of them.")
        p = one.p if smallest_p(one.clusters) <= 1 - LEVEL else np.nan
        rows.append((strategy, *one.interval, p, one.smallest_effect, one.seeds, len(values),
                     one.clusters))
    found = pd.DataFrame(rows, columns=["strategy", "effect", "low", "high", "p", "smallest_effect",
                                        "seeds", "samples", "clusters"])
    found.insert(5, "p_holm", holm(found["p"]))
    found[["low", "high"]] = found[["low", "high"]].clip(*bounds)
    return found


def paired(table: pd.DataFrame, strategy: str, base: str) -> tuple[Array, Array, Array]:
    """Scores of two strategies side by side, from a table as for `compare`: (samples, seeds, 2), of
    the strategy and of the base; (samples,): clusters, and strata."""
    places = [name for name in ("stratum", "cluster", "sample") if name in table]
    table = table[table["strategy"].isin([strategy, base])]
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


def sign_flip_test(values: Array, clusters: Array | None = None, strata: Array | None = None, *,
                   flips: int = FLIPS, seed: int = 0) -> float:
    """Two-sided p of mean differences (samples, seeds): how often random signs of whole clusters
    give one as large. Exact if there are no more patterns than `flips`; else (1 + k) / (1 + flips),
    with k of the drawn ones as large. It is about these seeds on other samples."""
    frame = pd.DataFrame({"value": values.mean(1),
                          "cluster": np.arange(len(values)) if clusters is None else clusters,
                          "stratum": 0 if strata is None else strata})
    frame["value"] /= frame.groupby("stratum")["value"].transform("size")
    units = frame.groupby(["stratum", "cluster"])["value"].sum().to_numpy()
    exact = 2 ** len(units) <= flips
    patterns = (_kept if len(units) <= FEW else _turned)(len(units), flips, exact, seed)
    sums = np.concatenate([units.sum() - 2 * turned @ units for turned in patterns])
    return chance_p(units.sum(), sums, exact=exact)


def chance_p(found: float, by_chance: npt.ArrayLike, *, exact: bool = False) -> float:
    """Two-sided p: how often chance gives what is as far from 0; `exact` if it is all there is."""
    large = np.abs(by_chance) >= abs(found) * (1 - TIE)
    return float(large.mean() if exact else (1 + large.sum()) / (1 + len(large)))


def _turned(count: int, flips: int, exact: bool, seed: int) -> Iterator[Array]:
    """All patterns of signs of so many clusters, or drawn ones, a part after the other."""
    patterns = np.arange(2**count) if exact else np.arange(flips)
    generator = np.random.default_rng(seed)
    for start in range(0, len(patterns), AT_ONCE):
        part = patterns[start : start + AT_ONCE, None]
        yield (part >> np.arange(count) & 1 if exact else
               generator.integers(0, 2, (len(part), count), dtype=np.int8))


@lru_cache(KEPT)
def _kept(count: int, flips: int, exact: bool, seed: int) -> list[Array]:
    return [*_turned(count, flips, exact, seed)]
