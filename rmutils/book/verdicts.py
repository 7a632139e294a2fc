"""The verdict on a claim: effects against what is claimed, by the rule in data/paper/README.md."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from rmutils.core.config import Config
from rmutils.core.registry import Registry
from rmutils.core.results import Artifact
from rmutils.preference.strategies import STRATEGIES
from rmutils.stats import LEVEL, Interval, holm, interval_p, smallest_effect, smallest_p

Verdict = Literal["size reached", "direction shown", "direction shown, smaller", "partly shown",
                  "size excluded", "undecided", "opposite shown", "could not have shown it",
                  "not run yet", "not testable at this size"]
REACHED, SHOWN, SMALLER, PARTLY, EXCLUDED, UNDECIDED, AGAINST, BLIND, NOT_RUN, UNTESTABLE = (
    VERDICTS) = Verdict.__args__
THERE = (REACHED, SHOWN, SMALLER)  # verdicts on an effect that lies where it is claimed
ALPHA = round(1 - LEVEL, 12)

MARGIN = 5.64
"""Points of 100 by which an untrained model must stand above answers that ignore the question, and
below the ceiling. The largest gain in a category that the paper's main tables report (Table 2:
Summ, Llama-3.1): with less room, a measurement could not show such a gain, or such a loss."""
CONSTANT = 0.9
"""From this share of equal answers on, a model is said to give the same answer to every question.
It only chooses the words of the reason: the margin decides."""
CATEGORIES = 2
"""Fewest categories of an average: the paper's is over seven, and one category is no average."""
MODELS = 8
"""Fewest models of a correlation that has a say. With eight, r must exceed 0.71 to differ from zero
(5 %, two-sided), about half of the variance; with four 0.95."""


def names_of(artifacts: Collection[str | Artifact]) -> tuple[str, ...]:
    """Names of stored results, of which some may be given by name."""
    return tuple(one if isinstance(one, str) else one.name for one in artifacts)


@dataclass(frozen=True)
class Effect:
    """A measured quantity."""

    # `value`, `low`, `high`: With its 95 % interval.
    value: float
    low: float
    high: float
    unit: str
    artifacts: tuple[str, ...]  # names of the stored results that it was computed from
    # Independent pieces of evidence, such as texts, needles or models; None: a count of all there
    # are, which chance has no part in.
    clusters: int | None
    note: str = ""  # what it is an average of, and other things to know beside the number
    blind: str = ""  # why the measurement could not have shown it; empty if it could

    @classmethod
    def of(cls, found: Interval, unit: str, artifacts: Collection[str | Artifact],
           clusters: int | None, note: str = "", blind: str = "") -> Self:
        """From an interval of `rmutils.stats`."""
        return cls(*map(float, found), unit, names_of(artifacts), clusters, note, blind)

    @property
    def blocked(self) -> str:
        """Why this measurement has no say; empty if it has one."""
        few = self.clusters is not None and smallest_p(self.clusters) > ALPHA
        return self.blind or (f"{self.clusters} independent cases: the smallest p that they can "
                              f"give is {smallest_p(self.clusters):.2g}" if few else "")

    @property
    def smallest(self) -> float:
        """The smallest effect that would likely have been detected."""
        return float(smallest_effect(self.low, self.high))

    def p(self, bound: float) -> float:
        """Two-sided p of a bound."""
        if self.clusters is None:
            return float(self.value == bound)
        return interval_p(Interval(self.value, self.low, self.high), bound, self.clusters)


class CannotShow(Exception):
    """Nothing that was measured could have moved."""

    def __init__(self, blind: str, unit: str, artifacts: Collection[str | Artifact]):
        super().__init__(blind)
        self.effect = Effect(np.nan, np.nan, np.nan, unit, names_of(artifacts), None, "", blind)


def blind_spot(before: float, chance: float, what: str, *, same: float = 0, answer: str = "",
               ceiling: bool = True) -> str:
    """Return why a score could not have moved; empty if it could."""
    if before - chance >= MARGIN and (before <= 100 - MARGIN or not ceiling):
        return ""
    if same >= CONSTANT:
        return f"{what}: the untrained model answers {answer!r} to {same:.0%} of the questions"
    if before - chance >= MARGIN:
        return f"{what}: {before:.1f} of 100 before training, close to the ceiling"
    better = "hardly" if before > chance else "no"
    return f"{what}: {better} better than blind guessing ({before:.1f} of 100 against {chance:.1f})"


@dataclass(frozen=True)
class Quantity:
    """Something that claims can be decided by."""

    measure: Callable[..., Effect]  # called with what it is measured on; returns an `Effect`
    # Says it with units: `{effect}` stands for the number, names of parameters for their values.
    sentence: str
    scale: float = 1  # from the effect to the units of the sentence

    def __call__(self, *of: str | int) -> Effect:
        return self.measure(*of)

    def said(self, *of: str | int) -> str:
        """The sentence about what it is measured on, still without the number."""
        bound = signature(self.measure).bind(*of)
        bound.apply_defaults()
        given = {name: " and ".join(map(_named, value)) if isinstance(value, tuple)
                 else _named(value) for name, value in bound.arguments.items()}
        return self.sentence.format(effect="{effect}", **given)

    @property
    def words(self) -> str:
        """The first sentence of its docstring."""
        return " ".join((self.measure.__doc__ or "").split()).split(". ")[0].rstrip(".")


def _named(value: str | int | None) -> str:
    """A strategy by its name; a model as it is typed."""
    if value in STRATEGIES:
        return STRATEGIES[str(value)].name
    return f"`{value}`" if re.fullmatch(r"[a-z0-9.]+(-[a-z0-9.]+)+", str(value)) else str(value)


QUANTITIES: Registry[Quantity] = Registry("quantity", "rmutils.quantities")
"""Quantities that decide claims, by their names in `data/paper/claims.yml`."""
Measured = Callable[..., Effect]


def quantity(sentence: str, *, scale: float = 1) -> Callable[[Measured], Measured]:
    """Return a decorator: claims can be decided by what the function measures, under its name."""
    def register(function: Measured) -> Measured:
        QUANTITIES.add(function.__name__, Quantity(function, sentence, scale))
        return function
    return register


class Claimed(Config):
    """A claim about an effect."""

    above: float | None = None
    below: float | None = None
    size: float | None = None
    """How large it is said to be, where there is one bound."""

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        lower, upper = self.bounds
        if self.above is None and self.below is None or not lower < upper:
            raise ValueError("give a bound, above or below; of two, above is the lower one")
        if self.size is not None and (np.isfinite(lower) == np.isfinite(upper)
                                      or not lower < self.size < upper):
            raise ValueError("a size goes with one bound, and lies on its claimed side")
        return self

    @property
    def bounds(self) -> tuple[float, float]:
        """Between which values the effect is claimed to lie."""
        return (-np.inf if self.above is None else self.above,
                np.inf if self.below is None else self.below)

    @property
    def words(self) -> str:
        """As `above 0, 0.7 or more`."""
        return self.words_in_units(1)

    def words_in_units(self, scale: float) -> str:
        """The same in the units of a sentence: `above 0, 70 or more` for percent, say."""
        bounds = {"above": self.above, "below": self.below}
        sides = [f"{name} {scale * bound:g}" for name, bound in bounds.items() if bound is not None]
        more = "more" if self.below is None else "less"
        size = "" if self.size is None else f", {scale * self.size:g} or {more}"
        return " and ".join(sides) + size

    def holds(self, value: float) -> bool:
        """Return whether a value lies within the bounds; a bound itself does not."""
        lower, upper = self.bounds
        return bool(lower < value < upper)

    def reaches(self, value: float) -> bool:
        """Return whether a value is as large as is claimed."""
        return self.size is not None and bool(
            value >= self.size if self.below is None else value <= self.size)


@dataclass(frozen=True)
class PartVerdict:
    """The verdict on a part of a claim, with the p of its direction (NaN if it has no say)."""

    verdict: Verdict
    p: float
    size_excluded: bool = False


def answers(parts: Sequence[tuple[Effect, Claimed]]) -> list[PartVerdict]:
    """Judge all parts of a claim that are measured; p is corrected over those that have a say."""
    heard = [i for i, (effect, _) in enumerate(parts) if not effect.blocked]
    sized = [i for i in heard if parts[i][1].size is not None]
    p = dict(zip(heard, holm([_direction_p(*parts[i]) for i in heard]), strict=True))
    size_p = dict(zip(sized, holm([parts[i][0].p(parts[i][1].size) for i in sized]), strict=True))
    return [_answer(*part, p[i], size_p.get(i, 1.0)) if i in p else PartVerdict(BLIND, np.nan)
            for i, part in enumerate(parts)]


def _direction_p(effect: Effect, claimed: Claimed) -> float:
    """The larger p: an effect within two bounds must be distinguished from both."""
    return max(map(effect.p, claimed.bounds))


def _answer(effect: Effect, claimed: Claimed, p: float, size_p: float) -> PartVerdict:
    excluded = size_p <= ALPHA and not claimed.reaches(effect.value)
    if p <= ALPHA:
        if not claimed.holds(effect.value):
            return PartVerdict(AGAINST, p, excluded)
        return PartVerdict(REACHED if claimed.reaches(effect.value) else
                           SMALLER if excluded else SHOWN, p, excluded)
    return PartVerdict(EXCLUDED if excluded else UNDECIDED, p, excluded)


def together(parts: Sequence[Verdict]) -> Verdict:
    """The verdict on a claim from those on its parts."""
    if NOT_RUN in parts:
        return NOT_RUN
    many, count = len(parts), Counter(parts)
    shown = sum(count[verdict] for verdict in THERE)
    if 2 * (many - count[BLIND]) < many:
        return BLIND
    if shown == many:
        return next(verdict for verdict in reversed(THERE) if count[verdict])
    if 2 * count[AGAINST] >= many and count[AGAINST] > shown:
        return AGAINST
    if 2 * shown >= many:
        return PARTLY
    return EXCLUDED if 2 * count[EXCLUDED] >= many else UNDECIDED


def tally(parts: Sequence[Verdict]) -> str:
    """Say how many parts have which verdict; nothing of a single part."""
    count, many = Counter(parts), len(parts)
    if many < 2:
        return ""
    if count[BLIND] == many:
        return f"none of {many} parts could"
    rest = [f"{count[verdict]} {verdict}" for verdict in (EXCLUDED, AGAINST, BLIND, NOT_RUN)
            if count[verdict]]
    shown = sum(count[verdict] for verdict in THERE)
    return ", ".join([f"{shown} of {many} parts shown", *rest])
