"""What the chapter on contrast without training says of needles, plain text and time."""

from __future__ import annotations

from functools import cache

import pandas as pd

from rmutils.book.chapters.contrast_without_training import experiment
from rmutils.book.chapters.contrast_without_training.experiment import CONTRASTED, SHORT
from rmutils.book.findings.registry import Measured, declare
from rmutils.core.errors import NotStored
from rmutils.stats import Interval

NEEDLES, COSTS, TEXTS = "fig-contrast-differences", "contrast-costs", "contrast-plain"
LARGE = "smollm2-135m"


@cache
def stored() -> experiment.Contrasts:
    """Look up the planned runs."""
    found = experiment.contrasts()
    if found is None:
        raise NotStored(f"None of the planned runs is stored. Make them: `{CONTRASTED.command}`.")
    return found


@cache
def _needles() -> pd.DataFrame:
    needles = stored().tables["needles"]
    table = experiment.compare_needles(needles[needles["model"] != LARGE])
    return table.set_index(["arm", "base", "model"])


@cache
def _perplexities() -> pd.DataFrame:
    texts = stored().tables["texts"]
    table = experiment.perplexity_changes(texts[texts["model"] == LARGE]).set_index("arm")
    return 1 + table[["effect", "low", "high"]].astype(float)


def _measured(row: pd.Series, columns: tuple[str, ...], scale: float, **more: object) -> Measured:
    ends = Interval(*(scale * row[list(columns)].astype(float)))
    return Measured(ends, [CONTRASTED.name], **more)  # type: ignore[arg-type]


@declare("contrast-needles", unit="points", place=NEEDLES, otherwise=(
    "{arm} minus {base}: {value} points more needles {ci} on {model}: {verdict}."))
def contrast_needles(arm: str, base: str, model: str) -> Measured:
    """Needles found by one way minus another; p allows for needles only, corrected for models."""
    row = _needles().loc[(arm, base, model)]
    return _measured(row, ("effect", "low", "high"), 100, clusters=int(row["needles"]),
                     p=row["p_holm"], words={"arm": SHORT[arm], "base": SHORT[base],
                                             "model": model})


@declare("contrast-perplexity", unit="times", place=TEXTS, otherwise=(
    "By {arm}, the perplexity of plain text is {value} times as high {ci} on {model}."))
def contrast_perplexity(arm: str) -> Measured:
    """Perplexity of plain text as a multiple of the model's own."""
    return _measured(_perplexities().loc[arm], ("effect", "low", "high"), 1,
                     words={"arm": SHORT[arm], "model": LARGE})


@declare("contrast-time", unit="times", place=COSTS, otherwise=(
    "A token takes {value} times as long {ci} by DeCoRe on {model}."))
def contrast_time(model: str) -> Measured:
    """Processor time for a token by DeCoRe, as a multiple of the model's own."""
    table = experiment.seconds_per_token(stored().tables["costs"]).set_index("model")
    return _measured(table.loc[model], ("ratio", "low", "high"), 1, words={"model": model})
