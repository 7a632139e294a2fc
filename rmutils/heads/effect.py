"""What a training did to the retrieval scores (section 5.3), for groups of heads and one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rmutils.errors import UserError
from rmutils.heads.before_after import (
    NEAREST,
    OTHER,
    RETRIEVAL,
    BeforeAfter,
    Cases,
    interval,
    needle_weights,
    over_trainings,
    weighted_means,
)
from rmutils.stats import RESAMPLES, cluster_bootstrap

CHOSEN, FOUND = "chosen on other needles", "needles found"
"""The groups of `split_half` and of `needles_found`."""
SPLITS = 20
"""Random halvings of the needles in `split_half`."""


def training_effect(
    pairs: Sequence[BeforeAfter], *, cases: Cases = "successful", resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Mean scores and their change, for groups of heads.

    The bootstrap draws whole needles, the same ones before and after, and whole trainings if there
    are several. With few of either, intervals are rather too short.

    Parameters
    ----------
    pairs : sequence of BeforeAfter
        One for each training (seeds, say), all of one model on one grid. Their mean is taken.
    cases : {"successful", "both"}
        See `Cases`.

    Returns
    -------
    DataFrame
        `group`, `heads` (how many; 0 for a difference), `quantity`, `value`, `low`, `high` (95 %).
        Quantities are the mean scores `before` and `after`, their `change`, and the `relative
        change`, a share of `before`. The groups `retrieval less ...` are differences of two groups.
    """
    measured = []
    for pair in pairs:
        sums = pair.sums(cases)
        means = weighted_means(sums, needle_weights(sums.shape[1], resamples, seed))
        groups = {name: _quantities(means[..., heads].mean(-1))
                  for name, heads in pair.groups().items()}
        for other in (OTHER, NEAREST):
            groups[f"retrieval less {other}"] = {
                name: groups[RETRIEVAL][name] - groups[other][name]
                for name in ("change", "relative change")}
        measured.append(groups)
    sizes = {name: len(heads) for name, heads in pairs[0].groups().items()}
    return _summary(measured, sizes, seed)


def split_half(
    pairs: Sequence[BeforeAfter], *, cases: Cases = "successful", resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """The change of heads that were chosen on other needles than those that measure the change.

    Heads that are chosen for high scores tend to fall when they are measured again, because some of
    them were high by luck. Here, the needles are halved at random. One half chooses the heads: the
    highest before the training, as many as there are retrieval heads. The other half, which had no
    say in that, measures their change. Then the halves change places, and all is averaged over many
    halvings.

    Returns
    -------
    DataFrame
        As from `training_effect`, of one group.

    Raises
    ------
    UserError
        There is only one needle.
    """
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
    return _summary(measured, {CHOSEN: len(pairs[0].retrieval)}, seed)


def _chosen_elsewhere(
    sums: np.ndarray, choosing: np.ndarray, weights: np.ndarray, half: np.ndarray, count: int
) -> np.ndarray:
    """(2, draws): mean scores, on the needles not in `half`, of the heads that `half` chooses."""
    scores = weighted_means(choosing, weights * half)
    chosen = np.argsort(-scores, axis=-1, kind="stable")[:, :count]
    means = np.take_along_axis(weighted_means(sums, weights * ~half), chosen[None], -1).mean(-1)
    return np.where(np.isnan(scores).any(-1) | np.isnan(means).any(0), np.nan, means)


def _mean_of_known(parts: np.ndarray) -> np.ndarray:
    """Mean along the first axis without NaN."""
    with np.errstate(invalid="ignore"):
        return np.nansum(parts, axis=0) / np.isfinite(parts).sum(0)


def needles_found(
    pairs: Sequence[BeforeAfter], *, resamples: int = RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """Share of the cases in which the needle is found: `before`, `after`, `both`, and the `change`.

    Returns
    -------
    DataFrame
        As from `training_effect`, of one group, whose name is `needles found`.
    """
    measured = []
    for pair in pairs:
        before, after = pair.success.astype(float)
        table = np.stack([before, after, before * after, after - before], axis=-1)
        drawn = cluster_bootstrap(table, pair.before.cases["needle"].to_numpy(),
                                  resamples=resamples, seed=seed)
        values = np.concatenate([table.mean(0)[None], drawn]).T
        names = ("before", "after", "both", "change")
        measured.append({FOUND: dict(zip(names, values, strict=True))})
    return _summary(measured, {}, seed)


def head_changes(
    pairs: Sequence[BeforeAfter], *, cases: Cases = "successful", resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Every head before and after, highest before first: what Figure 5 draws.

    Parameters
    ----------
    pairs : sequence of BeforeAfter
        As for `training_effect`, and with the same retrieval heads.

    Returns
    -------
    DataFrame
        `rank` (from 1), `layer`, `head`, `retrieval` (whether it is one), and `before`, `after`,
        `change`, each with `_low` and `_high` (95 %, drawn as in `training_effect`).
    """
    retrieval = pairs[0].retrieval
    if any(not np.array_equal(pair.retrieval, retrieval) for pair in pairs):
        raise UserError("the trainings have different retrieval heads: draw them one by one.")
    drawn = []
    for pair in pairs:
        sums = pair.sums(cases)
        means = weighted_means(sums, needle_weights(sums.shape[1], resamples, seed))
        drawn.append(np.stack([*means, means[1] - means[0]], axis=-1))
    values = over_trainings(np.stack(drawn), seed)  # (1 + resamples, heads, 3)
    order = np.argsort(-values[0, :, 0], kind="stable")
    layer, head = np.unravel_index(order, pairs[0].before.shape)
    table = pd.DataFrame({"rank": np.arange(1, len(order) + 1), "layer": layer, "head": head,
                          "retrieval": np.isin(order, retrieval)})
    ends = interval(values)[order]
    for i, name in enumerate(("before", "after", "change")):
        table[name] = values[0, order, i]
        table[[f"{name}_low", f"{name}_high"]] = ends[:, i]
    return table


def _quantities(means: np.ndarray) -> dict[str, np.ndarray]:
    """From the mean scores of a group, (2, draws), to (draws,) of each quantity."""
    before, after = means
    with np.errstate(invalid="ignore", divide="ignore"):
        return {"before": before, "after": after, "change": after - before,
                "relative change": (after - before) / before}


def _summary(
    measured: Sequence[dict[str, dict[str, np.ndarray]]], sizes: dict[str, int], seed: int
) -> pd.DataFrame:
    """A row for each group and quantity, from a nested dict per training."""
    rows = []
    for group, quantities in measured[0].items():
        for name in quantities:
            values = over_trainings(np.stack([m[group][name] for m in measured]), seed)
            rows.append((group, sizes.get(group, 0), name, values[0], *interval(values)))
    return pd.DataFrame(rows, columns=["group", "heads", "quantity", "value", "low", "high"])
