"""How many more needles a model keeps when the key heads that copy keep the whole text."""

from __future__ import annotations

from rmutils.book.chapters.memory_by_heads.experiment import NONE, TOP, WHOLE
from rmutils.book.chapters.memory_by_heads.results import (
    MAIN,
    needles_kept,
    primary,
    stored,
    top_minus_others,
)
from rmutils.book.findings.registry import Measured, declare
from rmutils.core.errors import NotStored
from rmutils.stats import Interval

FIGURE = "fig-memory-by-heads"


@declare("memory-kept", unit="percentage points", place=FIGURE, otherwise=(
    "On {model}, keeping the whole text for 40 % of the key heads saves {value} percentage points "
    "more needles {ci} if these heads copy than if others of the same layers do so: {verdict}."))
def kept(model: str) -> Measured:
    """Top key heads minus others of the same layers, at 40 %."""
    answers, name = _answers(model)
    found = top_minus_others(answers, MAIN)
    p = primary().set_index("model").loc[model, "p_holm"]
    return Measured(Interval(*(100 * end for end in found.interval)), [name], found.clusters, p,
                    words={"model": model})


@declare("memory-needles", unit="percent", place=FIGURE, otherwise="{value} % {ci}.")
def needles(model: str, share: float, policy: str = TOP) -> Measured:
    """Needles found when so many key heads keep the whole text, by default those that copy."""
    answers, name = _answers(model)
    table = needles_kept(answers)
    row = table[(table["policy"] == {0: NONE, 1: WHOLE}.get(share, policy))
                & (table["share"] == share)]
    return Measured(Interval(*(100 * row[end].iloc[0] for end in ("value", "low", "high"))),
                    [name], answers["needle"].nunique(), verdict="")


def bytes_kept(model: str, share: float) -> int:
    """Return the percent of the cache's bytes that are left."""
    table = needles_kept(_answers(model)[0])
    row = table[(table["policy"] == TOP) & (table["share"] == share)]
    return round(100 * row["kept"].iloc[0])


def _answers(model: str):
    if model not in stored():
        raise NotStored("Make it with `rmutils run memory_by_heads -p compute_memory auto`.")
    answers, artifact = stored()[model]
    return answers, artifact.name
