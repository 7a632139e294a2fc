"""Printed numbers: what a number rounded for print can and cannot tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction


@dataclass(frozen=True)
class Printed:
    """A number together with the open interval of exact numbers that it may stand for.

    Sums, differences, products and quotients carry the interval along (interval arithmetic), so
    the tolerance of a recomputed number follows from the printed digits alone.

    Attributes
    ----------
    value : Fraction
        The number as printed, or computed from the numbers as printed.
    low, high : Fraction
        Ends of the interval. For a number as printed: half a unit in its last place away.
    """

    value: Fraction
    low: Fraction
    high: Fraction

    @classmethod
    def read(cls, text: str) -> Printed:
        """Read digits as they are printed: ``46.40``, ``5e-7``, ``294K`` (thousands).

        Raises
        ------
        ValueError
            `text` is not a finite number.
        """
        digits, unit = (text[:-1], 1000) if text.endswith("K") else (text, 1)
        try:
            decimal = Decimal(digits)
        except InvalidOperation:
            raise ValueError(f"{text!r} is not a number") from None
        if not decimal.is_finite():
            raise ValueError(f"{text!r} is not a finite number")
        half = Fraction(10) ** decimal.as_tuple().exponent / 2
        value = Fraction(decimal)
        return cls(value * unit, (value - half) * unit, (value + half) * unit)

    @classmethod
    def exact(cls, value: int | float | Fraction) -> Printed:
        """A number that was not rounded."""
        return cls(Fraction(value), Fraction(value), Fraction(value))

    def __add__(self, other: Printed | int) -> Printed:
        other = _printed(other)
        return Printed(self.value + other.value, self.low + other.low, self.high + other.high)

    def __sub__(self, other: Printed | int) -> Printed:
        other = _printed(other)
        return Printed(self.value - other.value, self.low - other.high, self.high - other.low)

    def __mul__(self, other: Printed | int) -> Printed:
        other = _printed(other)
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Printed(self.value * other.value, min(ends), max(ends))

    def __truediv__(self, other: Printed | int) -> Printed:
        other = _printed(other)
        if other.low <= 0 <= other.high:
            raise ZeroDivisionError("the divisor may be zero")
        return self * Printed(1 / other.value, 1 / other.high, 1 / other.low)

    def __float__(self) -> float:
        return float(self.value)


def mean(numbers: Sequence[Printed]) -> Printed:
    """Plain mean of printed numbers; its interval is the mean of theirs."""
    return sum(numbers, Printed.exact(0)) / len(numbers)


def tolerance(a: Printed, b: Printed) -> Fraction:
    """Smallest difference between `a` and `b` that rounding cannot explain.

    It is the part of both intervals that lies between the two values. Two numbers with the same
    count of digits differ by rounding only if they are printed alike: 45.75 and 45.76 have the
    tolerance 0.01, and their difference is not below it.
    """
    if a.value > b.value:
        a, b = b, a
    return (a.high - a.value) + (b.value - b.low)


def _printed(number: Printed | int) -> Printed:
    return number if isinstance(number, Printed) else Printed.exact(number)
