"""What a training cost of other abilities, in points of 0 to 100 (section 5.1)."""

from __future__ import annotations

from rmutils.comparisons import bootstrap_mean, paired
from rmutils.evaluation.claims import Effect
from rmutils.evaluation.measured.sources import general_scores_of
from rmutils.evaluation.measured.training import RETMASK
from rmutils.training.planned import BEFORE


def general_change(model: str) -> Effect:
    """Score after RetMask less that before it, plain mean of the tasks without long contexts."""
    table, names = general_scores_of(model)
    tidy = table.assign(stratum=table["task"],
                        sample=table["task"] + " " + table["sample"].astype(str))
    pairs, clusters, strata = paired(tidy, RETMASK, BEFORE)
    return Effect.drawn(bootstrap_mean(pairs[..., 0] - pairs[..., 1], clusters, strata),
                        "points", names)
