"""Measures of RetMask's pairs: rejected answers beside chosen ones (appendix F).

Equal answers make no pair, so a mean over pairs tells more of a difference than one over all
instructions would.
"""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from rmutils.book.claims.effects.head_effects import RETMASK, seeds_said, trainings
from rmutils.book.verdicts import Effect, quantity
from rmutils.evaluation.answers import repetition_rate
from rmutils.stats import ANY, DIFFERENCE, Bounds, interval


@quantity("rejected answers of {model} are {effect} tokens longer than chosen ones")
def rejected_longer(model: str) -> Effect:
    """Tokens of the rejected answer minus those of the chosen one, mean over pairs."""
    return _rejected_beyond_chosen(
        model, lambda pairs, side: pairs[f"{side}_tokens"].astype(float), "tokens", ANY)


@quantity("rejected answers of {model} repeat {effect} more of their spans than chosen ones")
def rejected_repeats(model: str) -> Effect:
    """Repetition rate of the rejected answer minus that of the chosen one, mean over pairs."""
    return _rejected_beyond_chosen(
        model, lambda pairs, side: pairs[side].map(repetition_rate), "share of spans", DIFFERENCE)


def _rejected_beyond_chosen(
    model: str, of: Callable[[pd.DataFrame, str], pd.Series], unit: str, bounds: Bounds
) -> Effect:
    runs = trainings(model, RETMASK)
    pairs = pd.concat([run.pairs for run in runs], ignore_index=True)
    values = of(pairs, "rejected") - of(pairs, "chosen")
    seeds = seeds_said(run.artifact.manifest["config"]["seed"] for run in runs)
    return Effect.of(interval(values, pairs["id"], bounds=bounds), unit,
                     [run.artifact.name for run in runs], pairs["id"].nunique(),
                     f"{len(pairs)} pairs of {seeds}")
