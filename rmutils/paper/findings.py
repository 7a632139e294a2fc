"""One line of the audit, and the two rules by which numbers are compared.

What the audit's disagreements touch: the paper's sentences, and the gains that it reports.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from rmutils.paper.cells import TASKS
from rmutils.paper.tables import Printed, tolerance


@dataclass(frozen=True)
class Finding:
    """Two values that ought to agree, where each stands, and whether they do.

    Attributes
    ----------
    check : str
        The kind of check.
    what : str
        What both values are about.
    value_a, value_b : float or str
        As printed or computed; text where names are compared.
    place_a, place_b : str
        Where each is printed, or from what it is computed.
    tolerance : float
        Difference that rounding for print cannot explain (`rmutils.paper.tables.tolerance`).
    agrees : bool
    difference : float
        `value_a - value_b`; NaN for names.
    """

    check: str
    what: str
    value_a: float | str
    place_a: str
    value_b: float | str
    place_b: str
    tolerance: float
    agrees: bool
    difference: float


def equal(check: str, what: str, a: Printed, place_a: str, b: Printed, place_b: str) -> Finding:
    """`a` and `b` are the same quantity: they may differ by less than rounding explains."""
    limit, difference = tolerance(a, b), a.value - b.value
    agrees = difference == 0 or abs(difference) < limit
    return Finding(check, what, float(a), place_a, float(b), place_b, float(limit), agrees,
                   float(difference))


def above(check: str, what: str, a: Printed, place_a: str, b: Printed, place_b: str) -> Finding:
    """`a` is said to be above `b`: contradicted if `b` is higher by more than rounding explains."""
    limit, difference = tolerance(a, b), a.value - b.value
    agrees = difference >= 0 or -difference < limit
    return Finding(check, what, float(a), place_a, float(b), place_b, float(limit), agrees,
                   float(difference))


def same_text(check: str, what: str, a: str, place_a: str, b: str, place_b: str) -> Finding:
    """`a` and `b` name the same thing."""
    return Finding(check, what, a, place_a, b, place_b, 0.0, a == b, float("nan"))


ABOUT_SENTENCES = ("statement", "order of gains", "value in the text", "gain in the text",
                   "relative gain in the text")
"""Checks that compare a sentence with a table."""
ABOUT_SCORES = ("mean of tasks", "same cell", "English against Japanese")
"""Checks that compare two printed scores."""


def sentences(findings: pd.DataFrame) -> pd.DataFrame:
    """How often each sentence of the papers was compared with a table, and how often it agrees.

    Parameters
    ----------
    findings : DataFrame
        From `audit`.

    Returns
    -------
    DataFrame
        `sentence` (with its place), `comparisons`, `disagree`; in the order of the audit.
    """
    held = findings[findings.check.isin(ABOUT_SENTENCES)]
    # `statement` and `order of gains` quote the sentence in brackets, the others give its place.
    quoted = held.what.str.extract(r"\(((?:en|ja) .*)\)$")[0]
    sentence = quoted.fillna(held.place_a).rename("sentence")
    counts = (~held.agrees).groupby(sentence, sort=False).agg(["size", "sum"])
    return counts.set_axis(["comparisons", "disagree"], axis="columns").reset_index()


def beside_gains(findings: pd.DataFrame, tables: pd.DataFrame) -> pd.DataFrame:
    """Disagreements about a model's HELMET scores beside what RetMask is reported to gain on it.

    Parameters
    ----------
    findings, tables : DataFrame
        From `audit` and `load_tables`.

    Returns
    -------
    DataFrame
        `model`; `smallest_gain`, `largest_gain`: RetMask minus the model before training, over the
        input lengths of Tables 1 and 4 (English paper); `disagreements`, `largest`: how many, and
        the largest (NaN if there is none). In HELMET points.
    """
    scores = findings[findings.check.isin(ABOUT_SCORES)
                      & findings.what.str.endswith(("Average", *TASKS)) & ~findings.agrees]
    off = scores.difference.abs().groupby(scores.what.str.split(", ").str[0]).agg(["count", "max"])
    off = off.set_axis(["disagreements", "largest"], axis="columns")
    main = tables[(tables.source == "en") & tables.table.isin([1, 4])]
    value = main.set_index(["group", "column", "row"]).value
    gains = value.xs("RetMask", level="row") - value.xs("Before", level="row")
    beside = gains.groupby("group").agg(["min", "max"]).join(off)
    beside.columns = ["smallest_gain", "largest_gain", *off.columns]
    beside["disagreements"] = beside["disagreements"].fillna(0).astype(int)
    return beside.rename_axis("model").reset_index()
