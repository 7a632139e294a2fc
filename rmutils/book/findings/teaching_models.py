"""What the chapter on the teaching models says: needles without heads, and how heads formed."""

from __future__ import annotations

import pandas as pd

from rmutils.book.chapters.teaching_models.ablation import ablate_stored, together
from rmutils.book.findings.registry import NONE, SHOWN, Measured, declare
from rmutils.evaluation.formation import formation_stored, half_risen
from rmutils.stats import DIFFERENCE, SHARE, Interval, interval

MASKED, ALONE, FORMED = "fig-tiny-masked", "fig-heads-alone", "fig-formation"


def _percent(found: tuple[float, float, float]) -> Interval:
    return Interval(*(100 * end for end in found))


@declare("teaching-needles-found", unit="percent", place=MASKED, otherwise=(
    "{state}, the model finds {value} % of the needles {ci}."))
def needles_found(found: pd.DataFrame, state: str) -> Measured:
    """Share of needles found in a state, as `rmutils.evaluation.answers.find_needles` tells it."""
    share = interval(found["success"], found["needle"], bounds=SHARE,
                     cases=found["needle"].nunique())
    return Measured(_percent(share), (), found["needle"].nunique(), verdict=NONE,
                    words={"state": state})


@declare("teaching-needles-lost", unit="points", place=MASKED, otherwise=(
    "Without its retrieval heads, the model finds {value} points fewer needles {ci} than without "
    "random others: {verdict}."))
def needles_lost(others: pd.DataFrame, retrieval: pd.DataFrame) -> Measured:
    """Needles found with random others masked, minus those found with retrieval heads masked."""
    gaps = others["success"].astype(float) - retrieval["success"].astype(float)
    found = interval(gaps, others["needle"], bounds=DIFFERENCE)
    return Measured(_percent(found), (), others["needle"].nunique())


@declare("other-heads-together", unit="points", place=ALONE, otherwise=(
    "Without sets of other heads, {model} finds {value} points fewer needles {ci}: {verdict}."))
def other_heads_together(model: str) -> Measured:
    """Needles lost without as many other heads as there are retrieval heads, a mean over sets."""
    cases, artifact = ablate_stored(model, compute="never")
    return Measured(_percent(tuple(together(cases).loc["together"])), [artifact.name],
                    cases["needle"].nunique(), words={"model": model})


@declare("strongest-head", unit="percent", place=FORMED, otherwise=(
    "The head of {model} that retrieves most copies {value} % of a needle {ci}."))
def strongest_head(model: str) -> Measured:
    """Forced score of the highest head at the end of training."""
    formed, artifact = formation_stored(model, compute="never")
    risen = half_risen(formed)
    return Measured(_percent((risen["score"], risen["low"], risen["high"])), [artifact.name],
                    verdict=SHOWN, words={"model": model})
