"""Changes of the retrieval scores by a training (section 5.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

from rmutils import stats
from rmutils.core.errors import UserError
from rmutils.heads.scores import Head, HeadScores

Cases = Literal["successful", "both"]
"""Which cases count: before and after each its own successful ones, or those that were successful
both times."""

ALL, RETRIEVAL, OTHER, NEAREST = (
    "all heads", "retrieval heads", "other heads", "nearest other heads")
"""Groups of heads."""


@dataclass(frozen=True, eq=False)
class PairedDetection:
    """Two detections on the same cases, with their tables."""

    before: HeadScores  # of the model before a training
    after: HeadScores
    heads: Sequence[Head]  # the retrieval heads, also where a strategy masks others

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
        """(2, cases) bool: True where the needle was found, before and after."""
        return np.stack([s.cases["success"].to_numpy(bool) for s in (self.before, self.after)])

    @property
    def retrieval(self) -> np.ndarray:
        """Flat indices of `heads`, ascending."""
        return np.unique([layer * self.before.shape[1] + head for layer, head in self.heads])

    def groups(self) -> dict[str, np.ndarray]:
        """Return flat indices of the heads in each group. The nearest other heads are paired with
        the retrieval heads so that the scores before differ least in sum."""
        score, retrieval = self.before.mean.ravel(), self.retrieval
        others = np.setdiff1d(np.arange(score.size), retrieval)
        gaps = np.abs(score[retrieval][:, None] - score[others])
        return {ALL: np.arange(score.size), RETRIEVAL: retrieval, OTHER: others,
                NEAREST: others[linear_sum_assignment(gaps)[1]]}

    def sums(self, cases: Cases) -> np.ndarray:
        """Return (2, needles, heads + 1): scores by needle and, last, how many cases count."""
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
    drawn = np.random.default_rng(seed).multinomial(
        needles, np.full(needles, 1 / needles), size=resamples) / needles
    return np.concatenate([np.full((1, needles), 1 / needles), drawn])


def weighted_means(sums: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return mean scores under each draw, (..., draws, heads); NaN if no needle of it was found."""
    total = weights @ sums
    with np.errstate(invalid="ignore"):
        means: np.ndarray = total[..., :-1] / total[..., -1:]
    return means


def over_runs(values: np.ndarray, needles: int, seed: int, drawn: bool = True) -> np.ndarray:
    """Mean over training runs, moved in every resample as by `rmutils.stats.draws`."""
    count, means = len(values), stats.spread(values.mean(0), needles)
    if count > 1 and drawn:
        rng = np.random.default_rng([seed, 1])  # not the draws of the needles once more
        shares = rng.multinomial(count, np.full(count, 1 / count), size=len(means) - 1) / count
        moved = np.tensordot(shares - 1 / count, values[:, 0], 1)
        means[1:] += stats.expansion(count) * moved
    return np.asarray(means)


HEADROOM = "headroom change"
_BOUNDS = {"before": stats.SHARE, "after": stats.SHARE, "both": stats.SHARE,
           "change": stats.DIFFERENCE, "relative change": stats.RELATIVE, HEADROOM: (-np.inf, 1.0)}


def _interval(values: np.ndarray, group: str, quantity: str) -> stats.Interval:
    """The interval of a quantity, within the bounds that it has."""
    free = (quantity in ("relative change", HEADROOM) and group.startswith("retrieval minus")
            or (np.abs(values[0]) > 1).any())
    return stats.interval_of(values, bounds=stats.ANY if free else _BOUNDS[quantity],
                             centred=group == CHOSEN)


CHOSEN, FOUND = "chosen on other needles", "needles found"
"""The groups of `split_half` and of `needles_found`."""
SPLITS = 20  # random halvings of the needles in `split_half`


def training_effect(pairs: Sequence[PairedDetection], *, cases: Cases = "successful",
                    drawn: bool = True, resamples: int = stats.RESAMPLES,
                    seed: int = 0) -> pd.DataFrame:
    """Return mean scores and their change, for groups of heads and differences of two groups. The
    bootstrap draws whole needles, the same before and after, and whole runs if there are several.
    The `headroom change` is a share of what is missing to a score of 1."""
    measured = []
    for pair in pairs:
        sums = pair.sums(cases)
        means = weighted_means(sums, needle_weights(sums.shape[1], resamples, seed))
        groups = {name: _quantities(means[..., heads].mean(-1))
                  for name, heads in pair.groups().items()}
        for other in (OTHER, NEAREST):
            groups[f"retrieval minus {other}"] = {
                name: groups[RETRIEVAL][name] - groups[other][name]
                for name in ("change", "relative change", HEADROOM)}
        measured.append(groups)
    sizes = {name: len(heads) for name, heads in pairs[0].groups().items()}
    return _summary(measured, sizes, sums.shape[1], seed, drawn)


def split_half(pairs: Sequence[PairedDetection], *, cases: Cases = "successful",
               resamples: int = stats.RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """Measure the change of heads on other needles than those they were chosen by, as some of them
    were high by luck: random halves of the needles choose and measure in turn."""
    rng = np.random.default_rng([seed, 2])
    measured = []
    for pair in pairs:
        sums, choosing = pair.sums(cases), pair.sums("successful")[0]
        needles = sums.shape[1]
        if needles < 2:
            raise UserError("one needle cannot be halved: the grid needs two or more.")
        weights = needle_weights(needles, resamples, seed)
        halves = [rng.permutation(needles) < needles // 2 for _ in range(SPLITS)]
        parts = [_chosen_elsewhere(sums, choosing, weights, half, len(pair.retrieval))
                 for one in halves for half in (one, ~one)]
        measured.append({CHOSEN: _quantities(_mean_of_known(np.stack(parts)))})
    return _summary(measured, {CHOSEN: len(pairs[0].retrieval)}, needles, seed)


def _chosen_elsewhere(sums: np.ndarray, choosing: np.ndarray, weights: np.ndarray, half: np.ndarray,
                      count: int) -> np.ndarray:
    """(2, draws): mean scores, on the needles not in `half`, of the heads that `half` chooses."""
    scores = weighted_means(choosing, weights * half)
    chosen = np.argsort(-scores, axis=-1, kind="stable")[:, :count]
    means = np.take_along_axis(weighted_means(sums, weights * ~half), chosen[None], -1).mean(-1)
    return np.where(np.isnan(scores).any(-1) | np.isnan(means).any(0), np.nan, means)


def _mean_of_known(parts: np.ndarray) -> np.ndarray:
    """Mean along the first axis without NaN."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nansum(parts, axis=0) / np.isfinite(parts).sum(0))


def needles_found(pairs: Sequence[PairedDetection], *, resamples: int = stats.RESAMPLES,
                  seed: int = 0) -> pd.DataFrame:
    """Return the shares of cases with the needle found, and `change`, as `training_effect` does."""
    measured = []
    for pair in pairs:
        before, after = pair.success.astype(float)
        table = np.stack([before, after, before * after, after - before], axis=-1)
        needles = pair.before.cases["needle"].to_numpy()
        counted = np.column_stack([table, np.ones(len(table))])
        sums = (np.unique(needles)[:, None] == needles).astype(float) @ counted
        values = weighted_means(sums, needle_weights(len(sums), resamples, seed)).T
        names = ("before", "after", "both", "change")
        measured.append({FOUND: dict(zip(names, values, strict=True))})
    return _summary(measured, {}, len(sums), seed)


def head_changes(pairs: Sequence[PairedDetection], *, cases: Cases = "successful",
                 resamples: int = stats.RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """Return every head before and after, highest before first: the data of Figure 5."""
    retrieval = pairs[0].retrieval
    if any(not np.array_equal(pair.retrieval, retrieval) for pair in pairs):
        raise UserError("the trainings have different retrieval heads: draw them one by one.")
    drawn = []
    for pair in pairs:
        sums = pair.sums(cases)
        means = weighted_means(sums, needle_weights(sums.shape[1], resamples, seed))
        drawn.append(np.stack([*means, means[1] - means[0]], axis=-1))
    values = over_runs(np.stack(drawn), sums.shape[1], seed)  # (1 + resamples, heads, 3)
    order = np.argsort(-values[0, :, 0], kind="stable")
    layer, head = np.unravel_index(order, pairs[0].before.shape)
    table = pd.DataFrame({"rank": np.arange(1, len(order) + 1), "layer": layer, "head": head,
                          "retrieval": np.isin(order, retrieval)})
    for i, name in enumerate(("before", "after", "change")):
        table[name], table[f"{name}_low"], table[f"{name}_high"] = _interval(
            values[:, order, i], ALL, name)
    return table


def _quantities(means: np.ndarray) -> dict[str, np.ndarray]:
    """From the mean scores of a group, (2, draws), to (draws,) of each quantity."""
    before, after = means
    with np.errstate(invalid="ignore", divide="ignore"):
        return {"before": before, "after": after, "change": after - before,
                "relative change": (after - before) / before,
                HEADROOM: (after - before) / (1 - before)}


def _summary(measured: Sequence[dict[str, dict[str, np.ndarray]]], sizes: dict[str, int],
             needles: int, seed: int, drawn: bool = True) -> pd.DataFrame:
    """A row for each group and quantity, from a nested dict per training."""
    rows = []
    for group, quantities in measured[0].items():
        for name in quantities:
            values = over_runs(np.stack([m[group][name] for m in measured]), needles, seed, drawn)
            rows.append((group, sizes.get(group, 0), name, *_interval(values, group, name)))
    return pd.DataFrame(rows, columns=["group", "heads", "quantity", "value", "low", "high"])
