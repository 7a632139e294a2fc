"""Findings: every number in prose has one name, one code and one rounding; and `say`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, Literal, Self, TypeVar

import pandas as pd
from IPython.display import Markdown

from rmutils.book.figures.report import rounded
from rmutils.book.verdicts import Effect, names_of
from rmutils.core.errors import NotStored, UserError
from rmutils.core.registry import Registry
from rmutils.core.results import Artifact
from rmutils.preference.strategies import STRATEGIES
from rmutils.stats import LEVEL, Contrast, Interval

Verdict = Literal["shown", "opposite shown", "undecided", ""]
SHOWN: Verdict = "shown"
AGAINST: Verdict = "opposite shown"
UNDECIDED: Verdict = "undecided"
NONE: Verdict = ""  # the verdict on what is no comparison
BY_SIGN: Mapping[int, Verdict] = {1: SHOWN, -1: AGAINST, 0: UNDECIDED}
"""The verdicts of rules that return a sign."""


@dataclass(frozen=True)
class Measured:
    """What the function of a finding returns."""

    found: Interval  # in the unit of the finding; without ends where there is no interval
    artifacts: Collection[str | Artifact]  # the stored results that it was computed from
    clusters: int | None = None  # independent pieces of evidence: needles, questions, texts
    p: float = math.nan  # corrected as the plan says; NaN where the interval alone decides
    # By the rule of the plan. Default: shown if the interval lies above zero, the opposite if it
    # lies below, and p, if there is one, is below 0.05.
    verdict: Verdict | None = None
    # What the standard sentence names besides; by default what the function was called with.
    words: Mapping[str, object] | None = None

    @classmethod
    def of(cls, effect: Effect, scale: float, **words: object) -> Self:
        """From what decides claims, so that a claim and a chapter show one number."""
        ends = scaled((effect.value, effect.low, effect.high), scale)
        return cls(ends, effect.artifacts, effect.clusters, words=words,
                   verdict=UNDECIDED if effect.blocked else None)

    @classmethod
    def contrast(cls, found: Contrast, artifacts: Collection[str | Artifact], scale: float = 100, *,
                 p: float = math.nan, **words: object) -> Self:
        """From a comparison; its own p is not corrected, so one has to be given."""
        return cls(scaled(found.interval, scale), artifacts, found.clusters, p, words=words)

    @classmethod
    def row(cls, row: pd.Series, artifacts: Collection[str | Artifact], scale: float = 1, *,
            clusters: int | None = None, p: str = "", verdict: Verdict | None = None,
            **words: object) -> Self:
        """From a row of a table: its value and the ends of its interval; `p` names the column."""
        value = next(name for name in ("value", "effect", "difference", "ratio") if name in row)
        return cls(scaled(row[[value, "low", "high"]].astype(float), scale), artifacts, clusters,
                   row[p] if p else math.nan, verdict, words)

    @classmethod
    def count(cls, value: float, artifacts: Collection[str | Artifact] = (),
              **words: object) -> Self:
        """Something that was counted or is printed: nothing was drawn."""
        return cls(Interval(float(value), math.nan, math.nan), artifacts, words=words)


def scaled(found: Iterable[float], scale: float = 100) -> Interval:
    """Return a value and the ends of its interval in another unit: shares in percent, say."""
    return Interval(*(scale * float(end) for end in found))


@dataclass(frozen=True)
class Finding:
    """A named quantity as prose, boxes and tables show it."""

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
        if how == "points":
            return f"{self} point" if value.strip("-") == "1" else f"{self} points"
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
        if below := "|" in self.otherwise and one.value < 0:
            one = -one  # no reader likes "-3 points more"
        said = re.sub(r"\{(\w+)\|(\w+)\}", lambda found: found[1 + below], self.otherwise)
        return said.format(value=one, ci=f"{one:ci}", verdict=one.verdict)


@dataclass(frozen=True)
class Declared:
    """A finding before it is computed."""

    measure: Callable[..., Measured | Effect]
    unit: str
    place: str
    otherwise: str
    scale: float


M = TypeVar("M", Measured, Effect)
FINDINGS: Registry[Declared] = Registry("finding", "rmutils.findings")
"""All findings of the modules that are imported."""
_KNOWN: dict[tuple[object, ...], Finding] = {}


def declare(name: str, *, unit: str, place: str, otherwise: str,
            scale: float = 100) -> Callable[[Callable[..., M]], Callable[..., M]]:
    """Return a decorator that makes a finding of what a function measures."""
    def add(measure: Callable[..., M]) -> Callable[..., M]:
        FINDINGS.add(name, Declared(measure, unit, place, otherwise, scale))
        return measure
    return add


def finding(name: str, *of: Any) -> Finding:
    """Return a finding; it is computed once for what it is measured on."""
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


def named_finding(name: str, *of: Any) -> Finding:
    """Return a finding as files name it: `-name` is turned, and a list is a tuple."""
    found = finding(name.removeprefix("-"), *(tuple(one) if isinstance(one, list) else one
                                              for one in of))
    return -found if name.startswith("-") else found


def _measured(name: str, declared: Declared, of: tuple[Any, ...]) -> Finding:
    try:
        one = declared.measure(*of)
        if isinstance(one, Effect):
            one = Measured.of(one, declared.scale)
    except NotStored as missing:
        return Finding(name, math.nan, math.nan, math.nan, declared.unit, None, math.nan, NONE,
                       declared.otherwise, (), declared.place, str(missing))
    value, low, high = map(float, one.found)
    words = _measured_on(declared.measure, of) | {**(one.words or {})}
    otherwise = re.sub(r"\{(\w+)\}", lambda found: (
        as_text(str(words[found[1]])).translate(BRACES) if found[1] in words else found[0]),
        declared.otherwise)
    return Finding(name, value, low, high, declared.unit, one.clusters, one.p,
                   _verdict(low, high, one.p) if one.verdict is None else one.verdict, otherwise,
                   names_of(one.artifacts), declared.place)


def _measured_on(measure: Callable[..., object], of: tuple[Any, ...]) -> dict[str, object]:
    """Name what a quantity is measured on; strategies as readers know them."""
    bound = signature(measure).bind(*of)
    bound.apply_defaults()
    return {name: STRATEGIES[one].name if isinstance(one, str) and one in STRATEGIES else one
            for name, one in bound.arguments.items()}


def _verdict(low: float, high: float, p: float) -> Verdict:
    if math.isnan(low):
        return NONE
    if p >= 1 - LEVEL or low <= 0 <= high:  # without a p, the interval alone decides
        return UNDECIDED
    return SHOWN if low > 0 else AGAINST


class Said(Markdown):
    """Prose with findings in it; its output names them."""

    def __init__(self, text: str, findings: Collection[str]):
        super().__init__(text)
        self.findings = [*findings]

    def _repr_markdown_(self) -> tuple[str, dict[str, object]]:
        return self.data, {"rmutils": {"findings": self.findings}}


BRACES = str.maketrans({"{": "{{", "}": "}}"})
MARKS = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"} | {
    sign: f"\\{sign}" for sign in "\\`*[]$"})


def as_text(text: str) -> str:
    """Return Markdown that shows a text as it is, whatever signs a model or a path brings."""
    return text.translate(MARKS)


def filled(text: str, inserted: Mapping[str, object]) -> str:
    """Fill places in hand-written Markdown; strings are text, also between backticks."""
    strings = {key: one for key, one in inserted.items() if isinstance(one, str)}
    prose = {**inserted, **{key: as_text(one) for key, one in strings.items()}}
    code = {**inserted, **{key: one.replace("`", "'") for key, one in strings.items()}}
    return "".join(part.format(**(code if place % 2 else prose))
                   for place, part in enumerate(re.split(r"(`[^`]*`)", text)))


OWN_RUN = "*In this run:*"  # marks standard sentences: the reader's parameters gave another verdict


def say(text: str, *, expect: Verdict | Mapping[str, Verdict] = SHOWN, **inserted: object) -> Said:
    """Show hand-written prose with findings in it."""
    findings = {key: one for key, one in inserted.items() if isinstance(one, Finding)}
    names = [one.name for one in findings.values()]
    if missing := {one.missing for one in findings.values() if one.missing}:
        return Said(" ".join(["Not computed yet.", *sorted(missing)]), names)
    expected = (expect if isinstance(expect, Mapping) else dict.fromkeys(findings, expect))
    if unknown := set(expected) - set(findings):
        raise UserError(f"no finding is inserted as {', '.join(sorted(unknown))}")
    judged = {key: one for key, one in findings.items() if one.verdict}
    if any(one.verdict != expected.get(key, one.verdict) for key, one in judged.items()):
        told = dict.fromkeys(one.sentence for one in judged.values())
        return Said(" ".join([OWN_RUN, *told]), names)
    return Said(filled(text, inserted), names)
