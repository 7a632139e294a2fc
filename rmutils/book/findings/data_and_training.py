"""What the chapter on pairs and training says: of pairs made live or stored, and of half-learned
models. How their heads change beside the control is `half-learned-lead`, which the essay has, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pandas as pd

from rmutils.book.chapters.data_and_training import half_learned as half
from rmutils.book.chapters.data_and_training.pair_statistics import difference_on_same, summarize
from rmutils.book.findings.registry import (
    AGAINST,
    SHOWN,
    UNDECIDED,
    Measured,
    Verdict,
    declare,
)
from rmutils.core.errors import NotStored
from rmutils.core.experiment import load_plan
from rmutils.stats import Interval

PAIRS, HALF = "fig-pairs", "fig-half-learned"
SCALES = {"names_difference": 100}
"""Measures of pairs that are shown in percent."""


def _scaled(found: Interval, measure: str) -> Interval:
    return Interval(*(SCALES.get(measure, 1) * end for end in found))


@declare("pairs-differ", unit="percent, nats or tokens", place=PAIRS, otherwise=(
    "Chosen and rejected answers of {model} differ in {measure} by {value} {ci}: {verdict}."))
def pairs_differ(measures: pd.DataFrame, measure: str, model: str) -> Measured:
    """Mean of a measure of chosen beside rejected answers, over pairs."""
    row = summarize(measures[[measure]]).iloc[0]
    return Measured(_scaled(Interval(row["value"], row["low"], row["high"]), measure), [],
                    int(row["pairs"]), words={"measure": measure, "model": model})


@declare("pairs-beyond", unit="percent, nats or tokens", place=PAIRS, otherwise=(
    "On the same instructions, RetMask's pairs of {model} have {value} more of {measure} {ci} than "
    "those of {control}: {verdict}."))
def pairs_beyond(measures: pd.DataFrame, others: Sequence[pd.DataFrame], measure: str, model: str,
                 control: str) -> Measured:
    """The same, minus that of other pairs on the same instructions; several draws of others."""
    words = {"measure": measure, "model": model, "control": control}
    if not others:
        raise NotStored(f"Pairs of {control} are not stored.")
    both = difference_on_same(measures[measure], [table[measure] for table in others])
    if both is None:
        raise NotStored(f"No two instructions have a pair of both RetMask and {control}.")
    return Measured(_scaled(both[2], measure), [], words=words)


@cache
def half_learned() -> half.HalfLearned:
    """Look up the runs on half-learned models; all that are planned have to be stored."""
    found = half.half_learned()
    if found is None or found.done < found.planned:
        raise NotStored("Not all planned runs on half-learned models are stored. They are made by "
                        f"`{half.HALF_LEARNED.command}`.")
    return found


@cache
def _leads() -> pd.DataFrame:
    return half.compare_arms(half_learned().cases)


@declare("half-learned-needles", unit="points", place=HALF, otherwise=(
    "Half-learned {model} finds {value} points more needles {ci} after RetMask than after its "
    "control: {verdict}."))
def half_learned_needles(model: str) -> Measured:
    """Needles found after RetMask, minus after masking others of the same layers."""
    row = _leads().set_index("model").loc[model]
    ends = Interval(*(100 * row[["effect", "low", "high"]].astype(float)))
    return Measured(ends, [half.HALF_LEARNED.name],
                    half_learned().cases["needle"].nunique(), row["p_holm"],
                    words={"model": model})


@declare("half-learned-verdict", unit="models", place=HALF, otherwise=(
    "Over {value} half-learned models, the plan's verdict on RetMask's lead is: {told}."))
def half_learned_verdict() -> Measured:
    """The plan's verdict over all models; its value is how many there are."""
    table = _leads()
    told = half.verdict(table, load_plan("half_learned"))
    nan = float("nan")
    verdicts: dict[str, Verdict] = {"shown": SHOWN, "undecided": UNDECIDED}
    return Measured(Interval(len(table), nan, nan), [half.HALF_LEARNED.name],
                    verdict=verdicts.get(told, AGAINST), words={"told": told})


@declare("held-out-margin", unit="margin", place="fig-curves", otherwise=(
    "On held-out pairs of {strategy}, the margin after the training is {value} {ci}: {verdict}."))
def held_out_margin(tests: pd.DataFrame, strategy: str) -> Measured:
    """Mean margin of pairs that were not trained on; before the training it is 0."""
    row = summarize(tests[["margin"]]).iloc[0]
    return Measured(Interval(row["value"], row["low"], row["high"]), [], int(row["pairs"]),
                    words={"strategy": strategy})
