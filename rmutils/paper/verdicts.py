"""The verdict on a claim, by one rule: an effect with its interval against what is claimed of it.

What is claimed of an effect is that it lies on one side of a bound, or between two, and sometimes
how large it is. The 95 % interval decides:

- **reproduced**: the whole interval lies within the bounds and, where a size is claimed, contains
  it or lies beyond it.
- **partly**: the whole interval lies within the bounds, but falls short of the claimed size.
- **not reproduced**: no part of the interval lies within the bounds.
- **undecided**: one part does, another does not.

A bound itself does not lie within. A claim is often about several models, lengths or tasks. These
are its parts, each with an effect of its own, and together they are

- **not run yet** if a result that any part needs is not stored;
- **reproduced** if every part is;
- **partly** if some part is, at least partly, but not every one is reproduced;
- **not reproduced** if no part is, not even partly, and some part is not reproduced;
- **undecided** if all parts are.

A claim that models of this size cannot say anything about is **not testable at this size**, and the
reason is given with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from rmutils.core.config import Config
from rmutils.core.registry import Registry
from rmutils.stats import Interval, smallest_effect

Verdict = Literal["reproduced", "partly", "not reproduced", "undecided", "not run yet",
                  "not testable at this size"]
REPRODUCED, PARTLY, NOT, UNDECIDED, NOT_RUN, UNTESTABLE = VERDICTS = Verdict.__args__


@dataclass(frozen=True)
class Effect:
    """A measured quantity.

    Attributes
    ----------
    value, low, high : float
        With its 95 % interval.
    unit : str
    artifacts : tuple of str
        Names of the stored results that it was computed from.
    """

    value: float
    low: float
    high: float
    unit: str
    artifacts: tuple[str, ...]

    @classmethod
    def of(cls, found: Interval, unit: str, artifacts: Collection[str]) -> Self:
        """From an interval of `rmutils.stats`."""
        return cls(*map(float, found), unit, tuple(artifacts))

    @property
    def smallest(self) -> float:
        """The smallest effect that would likely have been detected (see
        `rmutils.stats.smallest_effect`)."""
        return float(smallest_effect(self.low, self.high))


QUANTITIES: Registry[Callable[..., Effect]] = Registry("quantity", "rmutils.quantities")
"""Quantities that decide claims: name in `data/paper/claims.yml` -> function."""


def quantity(function: Callable[..., Effect]) -> Callable[..., Effect]:
    """Decorator: claims can be decided by what this function measures, under its name."""
    return QUANTITIES.add(function.__name__, function)


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
        bounds = {"above": self.above, "below": self.below}
        sides = [f"{name} {bound:g}" for name, bound in bounds.items() if bound is not None]
        more = "more" if self.below is None else "less"
        return " and ".join(sides) + ("" if self.size is None else f", {self.size:g} or {more}")


def verdict(effect: Effect, claimed: Claimed) -> Verdict:
    """One part of a claim; an interval that is not known (NaN) leaves it undecided."""
    lower, upper = claimed.bounds
    if effect.high <= lower or effect.low >= upper:
        return NOT
    if not lower < effect.low <= effect.high < upper:
        return UNDECIDED
    if claimed.size is None:
        return REPRODUCED
    short = effect.high < claimed.size if claimed.below is None else effect.low > claimed.size
    return PARTLY if short else REPRODUCED


def together(parts: Collection[Verdict]) -> Verdict:
    """The verdict on a claim from those on its parts."""
    found = set(parts)
    if NOT_RUN in found:
        return NOT_RUN
    if len(found) == 1:
        return found.pop()
    if found & {REPRODUCED, PARTLY}:
        return PARTLY
    return NOT


def contradiction(effect: Effect, claimed: Claimed) -> float:
    """Distance of the effect from its bounds, in units of half its interval; 0 within them. From 1
    on the part is not reproduced, if the interval is symmetric."""
    lower, upper = claimed.bounds
    outside, half = max(lower - effect.value, effect.value - upper, 0), effect.high - effect.low
    return outside / (half / 2) if half else np.inf * outside if outside else 0.0


def more_needed(effect: Effect, claimed: Claimed) -> float:
    """Factor of data that would likely decide an undecided part, if the effect is as large as it
    seems: the smallest effect seen shrinks with the root of the number of samples or
    trainings, whichever of them the chance comes from."""
    distance = min(abs(effect.value - bound) for bound in claimed.bounds)
    return (effect.smallest / distance) ** 2 if distance else np.inf
