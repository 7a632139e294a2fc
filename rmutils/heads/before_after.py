"""Two detections of one model, before and after a training, resampled together.

Equation 1 averages over successful cases, and these are not the same before and after. So all means
come in two kinds: over the cases that were successful then, as in the paper, or over the cases that
were successful both times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import linear_sum_assignment

from rmutils.errors import UserError
from rmutils.heads.scores import Head, HeadScores
from rmutils.stats import cluster_bootstrap, expansion, percentiles

Cases = Literal["successful", "both"]
"""Which cases count: before and after each its own successful ones, or those that were successful
both times."""

ALL, RETRIEVAL, OTHER, NEAREST = (
    "all heads", "retrieval heads", "other heads", "nearest other heads")
"""Groups of heads."""


@dataclass(frozen=True, eq=False)
class BeforeAfter:
    """Two detections on the same cases.

    Attributes
    ----------
    before, after : HeadScores
        Of the model before and after a training, with their tables of cases.
    heads : sequence of (layer, head)
        The retrieval heads, which RetMask masks. The other strategies are asked about the same.

    Raises
    ------
    UserError
        Different cases, or none or all of the heads are retrieval heads.
    """

    before: HeadScores
    after: HeadScores
    heads: Sequence[Head]

    def __post_init__(self) -> None:
        ids = [list(scores.cases.get("case", ())) for scores in (self.before, self.after)]
        if not ids[0] or ids[0] != ids[1] or self.before.shape != self.after.shape:
            raise UserError(f"{self.before.model} and {self.after.model}: not the same cases, so "
                            f"their scores cannot be compared. Detect the heads of both on one "
                            f"grid: `rmutils detect MODEL --lengths ... --depths ...`.")
        if not 0 < len(self.retrieval) < self.before.mean.size:
            raise UserError(f"{len(self.retrieval)} of {self.before.mean.size} heads are retrieval "
                            f"heads: there must be some, and others to compare them with.")

    @property
    def success(self) -> np.ndarray:
        """(2, cases) bool: whether the needle was found, before and after."""
        return np.stack([s.cases["success"].to_numpy(bool) for s in (self.before, self.after)])

    @property
    def retrieval(self) -> np.ndarray:
        """Flat indices of `heads`, ascending."""
        return np.unique([layer * self.before.shape[1] + head for layer, head in self.heads])

    def groups(self) -> dict[str, np.ndarray]:
        """Flat indices of the heads in each group.

        The nearest other heads are as many as the retrieval heads (or all others, if these are
        fewer), paired with them so that the scores before differ least in sum. With all heads above
        a threshold for retrieval heads, they are the first ones below it.
        """
        score, retrieval = self.before.mean.ravel(), self.retrieval
        others = np.setdiff1d(np.arange(score.size), retrieval)
        gaps = np.abs(score[retrieval][:, None] - score[others])
        return {ALL: np.arange(score.size), RETRIEVAL: retrieval, OTHER: others,
                NEAREST: others[linear_sum_assignment(gaps)[1]]}

    def sums(self, cases: Cases) -> np.ndarray:
        """(2, needles, heads + 1): scores added up by needle and, last, how many cases count.

        Raises
        ------
        UserError
            No case counts.
        """
        success = self.success
        counted = np.stack([success.all(0)] * 2) if cases == "both" else success
        if not counted.any():
            raise UserError(f"no needle was found both before and after the training of "
                            f"{self.before.model}. Take all successful cases, or a larger grid.")
        needles = self.before.cases["needle"].to_numpy()
        of_needle = (np.unique(needles)[:, None] == needles).astype(float)
        return np.stack([of_needle @ _table(scores, some) for scores, some in
                         zip((self.before, self.after), counted, strict=True)])


def _table(scores: HeadScores, counted: np.ndarray) -> np.ndarray:
    """(cases, heads + 1): the scores in the cases that count, and a 1 for each of these cases."""
    table = np.ones((len(counted), scores.mean.size + 1))
    table[scores.cases["success"].to_numpy(bool), :-1] = scores.runs.reshape(len(scores.runs), -1)
    return np.where(counted[:, None], table, 0)


def needle_weights(needles: int, resamples: int, seed: int) -> np.ndarray:
    """(1 + resamples, needles): first all needles alike, then as a bootstrap draws them."""
    drawn = cluster_bootstrap(np.eye(needles), None, resamples=resamples, seed=seed)
    return np.concatenate([np.full((1, needles), 1 / needles), drawn])


def weighted_means(sums: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(..., draws, heads): mean scores under each draw; NaN if none of its needles was found."""
    total = weights @ sums
    with np.errstate(invalid="ignore"):
        return total[..., :-1] / total[..., -1:]


def over_trainings(values: np.ndarray, seed: int) -> np.ndarray:
    """Mean over trainings; in every resample, trainings are drawn with replacement.

    A few trainings differ less from one another than those they stand for, so what the draws move
    is spread out (`rmutils.stats.expansion`).

    Parameters
    ----------
    values : ndarray
        (trainings, 1 + resamples, ...), the first of them without resampling.
    """
    count = len(values)
    rng = np.random.default_rng([seed, 1])  # not the draws of the needles once more
    drawn = rng.multinomial(count, np.full(count, 1 / count), size=values.shape[1] - 1) / count
    spread = expansion(count) if count > 1 else 1
    moved = 1 / count + spread * (drawn - 1 / count)
    weights = np.concatenate([np.full((1, count), 1 / count), moved])
    return np.einsum("dt,td...->d...", weights, values)


def interval(values: np.ndarray) -> np.ndarray:
    """95 % interval from (1 + resamples, ...); draws in which no needle was found are left out."""
    drawn = values[1:]
    known = np.isfinite(drawn.reshape(len(drawn), -1)).all(1)
    return percentiles(drawn[known]) if known.any() else np.full((*drawn.shape[1:], 2), np.nan)
