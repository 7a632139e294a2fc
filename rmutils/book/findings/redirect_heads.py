"""How many more answers follow the sentence that a few heads are pointed at."""

from __future__ import annotations

from rmutils.book.chapters.redirect_heads.experiment import MATCHED, TOP, VARIANTS
from rmutils.book.chapters.redirect_heads.results import (
    CONTRADICTIONS,
    FEW_HEADS,
    HEADS,
    condition,
    more,
    moved_minus_pointed,
    points,
    primary,
    stored,
)
from rmutils.book.figures.report import spell
from rmutils.book.findings.registry import Measured, declare
from rmutils.core.errors import NotStored

FIGURE = "fig-redirect-heads"


@declare("redirect-follows", unit="percentage points", place=FIGURE, otherwise=(
    "On {model}, pointing {count} of {heads} heads makes {value} percentage points {ci} more "
    "answers follow the sentence than pointing the same number of other heads of the same layers: "
    "{verdict}."))
def follows(model: str) -> Measured:
    """Main heads minus the same layers."""
    return _follows(model, CONTRADICTIONS)


@declare("redirect-few", unit="percentage points", place=FIGURE, otherwise=(
    "On {model}, pointing {count} of {heads} heads makes {value} percentage points {ci} more "
    "answers follow the sentence than pointing the same number of other heads of the same layers: "
    "{verdict}."))
def few(model: str) -> Measured:
    """The same with very few heads."""
    return _follows(model, FEW_HEADS)


@declare("redirect-moved", unit="percentage points", place=FIGURE, otherwise=(
    "On {model}, moving the passage to the end makes {value} percentage points {ci} more answers "
    "follow it than pointing at it: {verdict}."))
def moved(model: str) -> Measured:
    """Answers that follow a passage moved to the end, minus those that follow one pointed at."""
    variants = stored(VARIANTS)
    if model not in variants.answers:
        raise NotStored("Make it with `rmutils run redirect_heads -p compute_redirected auto`.")
    found = points(moved_minus_pointed(model))
    return Measured(found.interval, [variants.artifacts[model].name], found.clusters,
                    words={"model": model})


def _follows(model: str, part: str) -> Measured:
    answers = stored(part).answers
    if model not in answers:
        raise NotStored("Make it with `rmutils run redirect_heads -p compute_redirected auto`.")
    top = condition(answers[model], TOP)
    found = points(more(top, condition(answers[model], MATCHED)))
    p = primary(answers).set_index("model").loc[model, "p_holm"]
    return Measured(found.interval, [stored(part).artifacts[model].name], found.clusters, p,
                    words={"model": model, "count": int(top["count"].iloc[0]),
                           "heads": HEADS[model]})


def few_heads(model: str) -> str:
    """Return the number of heads in the runs with very few, in a word."""
    answers = stored(FEW_HEADS).answers.get(model)
    return "few" if answers is None else spell(int(condition(answers, TOP)["count"].iloc[0]))
