"""What masking the heads of a score loses: the analyses of `which_heads.experiment`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from rmutils.book.chapters.which_heads.experiment import (
    COPY,
    MATCHED,
    PLAIN_TEXT,
    PRIMARY,
    TOP,
    WHOLE,
    WhichHeads,
)
from rmutils.heads.scores import DECIMALS
from rmutils.stats import ANY, DIFFERENCE, LEVEL, contrast, holm, interval


def costs(result: WhichHeads) -> pd.DataFrame:
    """Return what each masking loses, and how much of it is due to the heads.

    Columns: `outcome`, `kind`, `count`, `whole` (of the unmasked model), `lost` and `control` (by
    the top heads, and by as many others of the same layers), each an `Interval` over samples (and
    draws), `difference` (an `Interval`), `p` (sign flips of samples), `p_holm` (over the scores,
    for each outcome and number).
    """
    rows = []
    for (outcome, kind, count), part in result.outcomes[
            result.outcomes["policy"] != WHOLE].groupby(["outcome", "kind", "count"], sort=False):
        whole, lost = _lost(result, outcome, part)
        bounds = ANY if outcome == PLAIN_TEXT else DIFFERENCE
        beyond = contrast(lost[TOP] - lost[MATCHED], bounds=bounds)
        rows.append((outcome, kind, count, whole.mean(), interval(lost[TOP][:, 0], bounds=bounds),
                     interval(lost[MATCHED], seeds=True, bounds=bounds), beyond.interval, beyond.p))
    table = pd.DataFrame(rows, columns=["outcome", "kind", "count", "whole", "lost", "control",
                                        "difference", "p"])
    return table.assign(p_holm=table.groupby(["outcome", "count"])["p"].transform(holm))


def _lost(
    result: WhichHeads, outcome: str, part: pd.DataFrame
) -> tuple[pd.Series, dict[str, np.ndarray]]:
    """What the whole model has of an outcome, and what rows of `outcomes` lack of it: by policy,
    (samples, draws)."""
    whole = result.outcomes.query("policy == @WHOLE and outcome == @outcome").set_index(
        "sample")["value"]
    return whole, {policy: whole.to_numpy()[:, None] - group.pivot(
        index="sample", columns="draw", values="value").loc[whole.index].to_numpy()
        for policy, group in part.groupby("policy")}


def compare_ablations(by_how: Mapping[str, WhichHeads]) -> pd.DataFrame:
    """Return the five comparisons of `data/plans/which_heads_ablations.yml` on one model.

    Columns: `what`, `difference` (an `Interval` over needles and draws of the share of needles lost
    beyond the control), `p` (sign flips of needles), `p_holm` (over the five).
    """
    def beyond(how: str, kind: str) -> np.ndarray:
        part = by_how[how].outcomes.query(
            "policy != @WHOLE and outcome == @PRIMARY and kind == @kind")
        _, lost = _lost(by_how[how], PRIMARY, part)
        return np.asarray(lost[TOP] - lost[MATCHED])

    compared = [(f"heads by {kind}", beyond("zero", kind), DIFFERENCE)
                for kind in ("anchor", "query", "patching")]
    compared += [(f"{how} minus zero, heads by copy", beyond(how, COPY) - beyond("zero", COPY),
                  ANY) for how in ("mean", "query")]  # differences of differences
    found = {what: contrast(values, bounds=bounds) for what, values, bounds in compared}
    table = pd.DataFrame([(what, one.interval, one.p) for what, one in found.items()],
                         columns=["what", "difference", "p"])
    return table.assign(p_holm=holm(table["p"]))


def agreement(result: WhichHeads, count: int, tau: float = 0.1) -> pd.DataFrame:
    """Compare each score with the copy score.

    Columns: `kind`, `correlation` (Spearman's, over all heads), `common` (of the top `count`),
    `layers` (lowest, middle and highest of the top), `like_tau` (the score that as many heads reach
    as reach `tau` by the copy score; NaN if none does).
    """
    base, mean = result.ranking(COPY)[:count], result.map_of(COPY)
    reached = int((mean.round(DECIMALS) >= tau).sum())
    rows = []
    for kind in result.scores["kind"].unique():
        ranked, scores = result.ranking(kind), result.map_of(kind)
        layers = sorted(layer for layer, _ in ranked[:count])
        rows.append((kind, pd.Series(mean.ravel()).corr(pd.Series(scores.ravel()), "spearman"),
                     len({*ranked[:count]} & {*base}),
                     f"{layers[0]} to {layers[-1]}, median {np.median(layers):g}",
                     scores[ranked[reached - 1]] if reached else np.nan))
    return pd.DataFrame(rows, columns=["kind", "correlation", "common", "layers", "like_tau"])


def clear(row: Any, level: float = 1 - LEVEL) -> bool:
    """Apply the plan's rule to a row of `costs`: whether it decides."""
    return bool(row.p_holm < level and (row.difference.low > 0 or row.difference.high < 0))


def off_floor(costs_of: pd.DataFrame, bounds: tuple[float, float]) -> list[str]:
    """Return the outcomes that have room for a loss; plain text always has."""
    whole = costs_of.groupby("outcome", sort=False)["whole"].first()
    return [name for name, value in whole.items() if name == PLAIN_TEXT or value >= bounds[0]]

