"""Whether retrieval heads stay retrieval heads when attention changes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from rmutils.book.chapters.retrieval_heads_under_change.experiment import KEYS_TRAIT
from rmutils.book.chapters.retrieval_heads_under_change.head_ranking import (
    HALF,
    agreements,
    masking,
    moves,
    training,
    traits_set_apart,
)
from rmutils.book.findings.registry import (
    AGAINST,
    NONE,
    SHOWN,
    UNDECIDED,
    Measured,
    Verdict,
    declare,
)
from rmutils.core.results import Artifact, Tables
from rmutils.stats import LEVEL, Interval

MATRIX, MOVES = "fig-change-matrix", "fig-change-moves"
TRAINED, SPECIAL = "fig-change-training", "other-special-heads"
ENDS = ["value", "low", "high"]
Found = tuple[Tables, Artifact]
"""What is stored of a model, as from `heads_stored`."""


def _measured(
    found: Found, table: pd.DataFrame, quantity: str, variant: str, verdict: Verdict | None = None
) -> Measured:
    tables, artifact = found
    row = table[(table["quantity"] == quantity) & (table["variant"] == variant)].iloc[0]
    return Measured(Interval(*(100 * row[ENDS].astype(float))), [artifact.name],
                    tables["needles"]["question"].nunique(), verdict=verdict,
                    words={"model": artifact.model, "variant": variant})


@declare("rank-overlap", unit="percent", place=MATRIX, otherwise=(
    "Under {variant}, {value} % of the highest heads of {model} stay among the highest {ci}."))
def rank_overlap(found: Found, variant: str) -> Measured:
    """Share of the highest heads that stay among the highest; by the first rule, half is kept."""
    one = _measured(found, agreements(found[0]), "overlap", variant)
    verdict = (SHOWN if one.found.low >= 100 * HALF else
               AGAINST if one.found.high < 100 * HALF else UNDECIDED)
    return Measured(one.found, one.artifacts, one.clusters, verdict=verdict, words=one.words)


@declare("score-fall", unit="points of the score", place=MOVES, otherwise=(
    "Under {variant}, the mean score of the retrieval heads of {model} falls by {value} points of "
    "100 {ci}: {verdict}."))
def score_fall(found: Found, variant: str) -> Measured:
    """Fall of the retrieval heads' mean score, on needles found both times."""
    one = _measured(found, moves(found[0]), "retrieval heads", variant)
    return Measured(Interval(-one.found.value, -one.found.high, -one.found.low), one.artifacts,
                    one.clusters, words=one.words)


@declare("found-under", unit="percent", place=MATRIX, otherwise=(
    "Under {variant}, {model} finds {value} % of the needles {ci}."))
def found_under(found: Found, variant: str) -> Measured:
    """Needles found by a whole model."""
    return _measured(found, masking(found[0]["needles"]), "found", variant, NONE)


@declare("excess-under", unit="points", place=MATRIX, otherwise=(
    "Under {variant}, masking the retrieval heads costs {model} {value} points more needles {ci} "
    "than masking others: {verdict}."))
def excess_under(found: Found, variant: str) -> Measured:
    """Needles lost with the retrieval heads masked, minus with the same number of others."""
    return _measured(found, masking(found[0]["needles"]), "excess", variant)


@declare("retmask-gain-under", unit="points", place=TRAINED, otherwise=(
    "Under {variant}, models that RetMask trained from {model} find {value} points more needles "
    "{ci}: {verdict}."))
def retmask_gain_under(found: Found, variant: str) -> Measured:
    """Needles found by trained models, minus the untrained one."""
    return _measured(found, training(found[0]["needles"]), "gain", variant)


@declare("keys-order", unit="percent", place=SPECIAL, otherwise=(
    "In {value} % of the pairs {ci}, a retrieval head of {model} picks out more keys than another "
    "head of its layer: {verdict}."))
def keys_order(every: Mapping[str, Found], model: str) -> Measured:
    """How often a retrieval head picks out more keys than another; shown: Ms-PoE spares it."""
    table = traits_set_apart({name: one for name, (one, _) in every.items()})
    row = table[(table["trait"] == KEYS_TRAIT) & (table["model"] == model)].iloc[0]
    clear = row["p_holm"] < 1 - LEVEL
    verdict = (SHOWN if clear and row["low"] > HALF else
               AGAINST if clear and row["high"] < HALF else UNDECIDED)
    tables, artifact = every[model]
    return Measured(Interval(*(100 * row[ENDS].astype(float))), [artifact.name],
                    int(np.unique(tables["traits"]["question"]).size), float(row["p_holm"]),
                    verdict=verdict, words={"model": model})
