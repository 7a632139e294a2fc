"""Retrieval scores of all heads: means, intervals, selections, and the published JSON format."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmutils.core.errors import UserError
from rmutils.core.files import parse_json
from rmutils.stats import LEVEL, RESAMPLES, SHARE, Bounds, Interval, draws, interval_of

Head = tuple[int, int]
"""(layer, head)"""
Values = NDArray[np.float64]

DECIMALS = 9
"""Means are rounded to these before they meet a threshold or a rank: sums of k/n are inexact."""


@dataclass(frozen=True, eq=False)
class HeadScores:
    """Retrieval scores of every head in every successful run.

    Attributes
    ----------
    runs : ndarray of float64
        (successful runs, layers, heads): share of the needle that a head copied (Equation 1).
    model : str
        The model's name.
    clusters : ndarray of int, optional
        (successful runs,): which runs belong together, here the needle. Runs of one needle are
        alike, so the bootstrap draws whole needles. Without it, it draws runs.
    cases : DataFrame
        One row per case of the grid, failed ones included: `case`, `needle`, `length`, `depth`,
        `success`, `rouge`, `response`. Empty if unknown.

    Raises
    ------
    UserError
        There is no successful run.

    Examples
    --------
    >>> import numpy as np
    >>> from rmutils import HeadScores
    >>> runs = np.zeros((6, 1, 3))  # six needles, one layer of three heads
    >>> runs[:, 0, 1], runs[:, 0, 2] = [0.5, 0.6, 0.7, 0.6, 0.4, 0.8], 0.125
    >>> scores = HeadScores(runs, "a model", clusters=np.arange(6))
    >>> scores.mean
    array([[0.   , 0.6  , 0.125]])
    >>> scores.interval(0.95)[0, 1].round(1)
    array([0.5, 0.7])
    >>> scores.select(tau=0.1)
    [(0, 1), (0, 2)]
    """

    runs: np.ndarray
    model: str
    clusters: np.ndarray | None = None
    cases: pd.DataFrame = field(default_factory=pd.DataFrame)

    def __post_init__(self) -> None:
        if self.runs.ndim != 3 or not len(self.runs):
            raise UserError(f"{self.model}: no successful run, so there is no score. A model that "
                            f"never finds the needle has no retrieval heads to be seen.")

    @property
    def shape(self) -> tuple[int, int]:
        """(layers, heads)."""
        layers, heads = self.runs.shape[1:]
        return layers, heads

    @cached_property
    def mean(self) -> np.ndarray:
        """(layers, heads) float64: RetrievalScore(h), the mean over successful runs."""
        mean: np.ndarray = self.runs.mean(0)
        return mean

    def draws(
        self, *, resamples: int = RESAMPLES, seed: int = 0, level: float = LEVEL
    ) -> np.ndarray:
        """Return the map of means, followed by draws of it: (1 + resamples, layers, heads).

        Whole clusters are drawn, and all heads together, so that statistics over heads are right.
        See `rmutils.stats.draws`; no score is drawn below 0 or above the highest of a run.
        """
        drawn = draws(self.runs, self.clusters, resamples=resamples, seed=seed, level=level)
        return np.clip(drawn, 0, max(1.0, self.runs.max()))

    def interval(
        self, level: float = LEVEL, *, resamples: int = RESAMPLES, seed: int = 0
    ) -> np.ndarray:
        """Return the interval of each mean, (layers, heads, 2); NaN from a single cluster."""
        drawn = self.draws(resamples=resamples, seed=seed, level=level)
        return np.stack(interval_of(drawn, level=level)[1:], axis=-1)

    def statistic(
        self, function: Callable[[np.ndarray], np.ndarray], *, bounds: Bounds = SHARE,
        resamples: int = RESAMPLES, seed: int = 0,
    ) -> Interval:
        """Return a number about the whole map of means, with its 95 % interval.

        Parameters
        ----------
        function : callable
            From maps (..., layers, heads), rounded to `DECIMALS`, to a number for each.
        """
        drawn = self.draws(resamples=resamples, seed=seed).round(DECIMALS)
        values = np.asarray(function(drawn), dtype=float)
        values[np.isnan(drawn).any((1, 2))] = np.nan
        return interval_of(values, bounds=bounds, centred=True)

    def where(self, chosen: np.ndarray) -> HeadScores:
        """Return the scores of some of the cases only.

        Parameters
        ----------
        chosen : ndarray of bool
            One per row of `cases`.
        """
        runs = chosen[self.cases["success"].to_numpy()]
        clusters = None if self.clusters is None else self.clusters[runs]
        return HeadScores(self.runs[runs], self.model, clusters, self.cases[chosen])

    def ranking(self) -> list[Head]:
        """Return all heads, highest mean first; ties in the order of layer and head."""
        order = np.argsort(-self.mean.ravel(), kind="stable")
        return [divmod(int(i), self.shape[1]) for i in order]

    def select(self, *, tau: float | None = None, top_k: int | None = None) -> list[Head]:
        """Return retrieval heads, highest first: with a mean of at least `tau`, or the `top_k`.

        Raises
        ------
        UserError
            No head reaches `tau`, or there are not `top_k` heads.
        """
        if (tau is None) == (top_k is None):
            raise UserError("select() needs either tau or top_k.")
        ranking = self.ranking()
        if top_k is not None:
            if not 0 < top_k <= len(ranking):
                raise UserError(f"top_k={top_k}: {self.model} has {len(ranking)} heads.")
            return ranking[:top_k]
        chosen = [head for head in ranking if self.mean[head].round(DECIMALS) >= tau]
        if not chosen:
            layer, head = ranking[0]
            raise UserError(f"no head of {self.model} reaches tau={tau:g}: the highest is layer "
                            f"{layer}, head {head} with {self.mean[ranking[0]]:.3f}.")
        return chosen

    def select_random(
        self, count: int, *, exclude: Iterable[Head] = (), seed: int = 42
    ) -> list[Head]:
        """Draw `count` random heads; with `exclude` the paper's Non-Retrieval-Mask (section 4.1).

        The seed 42 is that of the authors' `mask_retrieval_head.py`.
        """
        excluded = set(exclude)
        pool = [head for head in np.ndindex(*self.shape) if head not in excluded]
        if count > len(pool):
            raise UserError(f"{count} random heads asked for, but only {len(pool)} to draw from.")
        drawn = np.random.default_rng(seed).choice(len(pool), size=count, replace=False)
        return sorted(pool[i] for i in drawn)

    def to_wu_json(self, path: Path | str) -> None:
        """Write the format of Wu et al. and RetMask: {"layer-head": [score of each run]}.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from rmutils import HeadScores
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     HeadScores(np.array([[[0.0, 0.5]]]), "a model").to_wu_json(f"{folder}/scores.json")
        ...     print(open(f"{folder}/scores.json").read())
        ...     HeadScores.from_wu_json(f"{folder}/scores.json", shape=(1, 2)).select(top_k=1)
        {"0-0": [0.0], "0-1": [0.5]}
        [(0, 1)]
        """
        layers, heads = self.shape
        record = {f"{i}-{j}": self.runs[:, i, j].tolist()
                  for i in range(layers) for j in range(heads)}
        Path(path).write_text(json.dumps(record))

    @classmethod
    def from_wu_json(
        cls, path: Path | str, *, shape: tuple[int, int] | None = None
    ) -> HeadScores:
        """Read the format of Wu et al. and RetMask.

        Parameters
        ----------
        shape : tuple of int, optional
            (layers, heads) of the model that the scores are meant for (`lm.shape`).

        Raises
        ------
        UserError
            Malformed JSON, missing heads, heads with different numbers of runs, scores that are
            not finite, or scores of a model with another shape.
        """
        path = Path(path)
        try:
            record = parse_json(path.read_text())
            table: dict[Any, Any] = {
                tuple(map(int, key.split("-"))): np.asarray(value, dtype=float)
                for key, value in record.items()}
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}.") from None
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            raise UserError(f'{path}: not head scores. Expected {{"layer-head": [score, ...]}} '
                            f"({error}).") from error
        return cls(_as_array(table, path, shape), path.stem)


def _as_array(table: dict[Head, np.ndarray], path: Path, shape: tuple[int, int] | None) -> Values:
    """(runs, layers, heads) from a complete table of equally long rows."""
    if not table or any(len(key) != 2 or values.ndim != 1 for key, values in table.items()):
        raise UserError(f'{path}: not head scores. Expected {{"layer-head": [score, ...]}}.')
    found = tuple(max(key[i] for key in table) + 1 for i in (0, 1))
    if shape and found != tuple(shape):
        raise UserError(f"{path}: scores of {found[0]} layers x {found[1]} heads, but the model "
                        f"has {shape[0]} x {shape[1]}. Are they of another model?")
    if missing := math.prod(found) - len(table):  # any number, where a key has a digit too many
        names = (f"{i}-{j}" for i in range(found[0]) for j in range(found[1])
                 if (i, j) not in table)
        raise UserError(f"{path}: {_some(names, missing)} missing.")
    lengths = {len(values) for values in table.values()}
    if len(lengths) > 1:
        raise UserError(f"{path}: heads have different numbers of runs ({min(lengths)} to "
                        f"{max(lengths)}).")
    wrong = [f"{i}-{j}" for (i, j), values in table.items() if not np.isfinite(values).all()]
    if wrong:
        raise UserError(f"{path}: {_some(wrong, len(wrong))} not finite (NaN or infinity).")
    rows = [table[head] for head in np.ndindex(*found)]
    return np.stack(rows, axis=1).reshape(-1, *found)


def _some(names: Iterable[str], count: int) -> str:
    verb = "is" if count == 1 else "are"
    more = f" and {count - 5} more" if count > 5 else ""
    return f"head {', '.join(islice(names, 5))}{more} {verb}"
