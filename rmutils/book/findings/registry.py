"""Findings: every number that prose shows has one name, one code and one rounding."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from rmutils.book.figures.report import rounded
from rmutils.book.verdicts import Effect
from rmutils.core.errors import NotStored, UserError
from rmutils.core.registry import Registry
from rmutils.stats import LEVEL, Interval

Verdict = Literal["shown", "opposite shown", "undecided", ""]
SHOWN: Verdict = "shown"
AGAINST: Verdict = "opposite shown"
UNDECIDED: Verdict = "undecided"
NONE: Verdict = ""
"""The verdict on what is no comparison."""


@dataclass(frozen=True)
class Measured:
    """What the function of a finding returns.

    Attributes
    ----------
    found : Interval
        In the unit of the finding; without ends where there is no interval.
    artifacts : collection
        Names of the stored results that it was computed from.
    clusters : int, optional
        Independent pieces of evidence: needles, questions, texts.
    p : float
        Corrected as the plan says; NaN where the interval alone decides.
    verdict : str, optional
        By the rule of the plan. Default: shown if the interval lies above zero, the opposite if it
        lies below, and p, if there is one, is below 0.05.
    words : mapping
        What the standard sentence names besides.
    """

    found: Interval
    artifacts: Collection[str]
    clusters: int | None = None
    p: float = math.nan
    verdict: Verdict | None = None
    words: Mapping[str, object] | None = None


    @classmethod
    def of(cls, effect: Effect, scale: float, **words: object) -> Self:
        """From what decides claims, so that a claim and a chapter show one number."""
        ends = Interval(*(scale * end for end in (effect.value, effect.low, effect.high)))
        return cls(ends, effect.artifacts, effect.clusters, words=words,
                   verdict=UNDECIDED if effect.blocked else None)


@dataclass(frozen=True)
class Finding:
    """A named quantity as prose, boxes and tables show it.

    In prose, `{loss}` is its value, linked to where it comes from, `{loss:ci}` its interval in
    brackets, and `{loss:p}` its p. A minus in front turns it round: `-finding("rise")` is a fall.
    """

    name: str
    value: float
    low: float
    high: float
    unit: str
    clusters: int | None
    p: float
    verdict: Verdict
    otherwise: str
    artifacts: tuple[str, ...]
    place: str
    missing: str = ""
    turned: bool = False

    def __neg__(self) -> Finding:
        turn: dict[Verdict, Verdict] = {SHOWN: AGAINST, AGAINST: SHOWN}
        other = turn.get(self.verdict, self.verdict)
        return replace(self, value=-self.value, low=-self.high, high=-self.low, verdict=other,
                       turned=not self.turned)

    def __format__(self, how: str) -> str:
        value, low, high = self.shown
        if how == "ci":
            return f"(95% CI {low} to {high})" if low else ""
        if how == "p":
            return f"p = {self.p:.2g}" if self.p >= 0.001 else "p < 0.001"
        if how == "plain":
            return value
        return f"[{value}](#{self.place})"

    def __str__(self) -> str:
        value, low, high = self.shown
        return f"{value} [{low},\u00a0{high}]" if low else value

    @property
    def shown(self) -> tuple[str, str, str]:
        """The value and the ends of its interval with the digits that the interval allows."""
        return rounded(Interval(self.value, self.low, self.high))

    @property
    def sentence(self) -> str:
        """What the finding says by itself, whatever its verdict is."""
        one = -self if self.turned else self
        return self.otherwise.format(value=one, ci=f"{one:ci}", verdict=one.verdict)


@dataclass(frozen=True)
class Declared:
    """A finding before it is computed."""

    measure: Callable[..., Measured]
    unit: str
    place: str
    otherwise: str


FINDINGS: Registry[Declared] = Registry("finding", "rmutils.findings")
"""All findings of the modules that are imported."""
_KNOWN: dict[tuple[object, ...], Finding] = {}


def declare(
    name: str, *, unit: str, place: str, otherwise: str
) -> Callable[[Callable[..., Measured]], Callable[..., Measured]]:
    """Return a decorator that makes a finding of what a function measures.

    Parameters
    ----------
    unit : str
        Of the value: points, percent.
    place : str
        The label of the figure or table that shows where it comes from.
    otherwise : str
        The standard sentence: true whatever the verdict, with `{value}`, `{ci}` and `{verdict}`,
        and the names in `Measured.words`.
    """
    def add(measure: Callable[..., Measured]) -> Callable[..., Measured]:
        FINDINGS.add(name, Declared(measure, unit, place, otherwise))
        return measure
    return add


def finding(name: str, *of: Any) -> Finding:
    """Return a finding; it is computed once for what it is measured on.

    Where a result is not stored, the finding says which command makes it.

    Raises
    ------
    UserError
        No such finding is declared.
    """
    if name not in FINDINGS:
        raise UserError(FINDINGS.unknown(name))
    try:
        if (known := _KNOWN.get((name, *of))) is not None:
            return known
        keep = True
    except TypeError:  # what is computed live has no hash
        keep = False
    found = _measured(name, FINDINGS[name], of)
    if keep and not found.missing:
        _KNOWN[name, *of] = found
    return found


def _measured(name: str, declared: Declared, of: tuple[Any, ...]) -> Finding:
    try:
        one = declared.measure(*of)
    except NotStored as missing:
        return Finding(name, math.nan, math.nan, math.nan, declared.unit, None, math.nan, NONE,
                       declared.otherwise, (), declared.place, str(missing))
    value, low, high = map(float, one.found)
    words = {key: str(word) for key, word in (one.words or {}).items()}
    otherwise = re.sub(r"\{(\w+)\}", lambda found: words.get(found[1], found[0]),
                       declared.otherwise)
    return Finding(name, value, low, high, declared.unit, one.clusters, one.p,
                   _verdict(low, high, one.p) if one.verdict is None else one.verdict, otherwise,
                   tuple(one.artifacts), declared.place)


def _verdict(low: float, high: float, p: float) -> Verdict:
    if math.isnan(low):
        return NONE
    if p >= 1 - LEVEL or low <= 0 <= high:  # without a p, the interval alone decides
        return UNDECIDED
    return SHOWN if low > 0 else AGAINST
