"""One line of the audit, and the two rules by which numbers are held against each other."""

from __future__ import annotations

from dataclasses import dataclass

from rmutils.paper.printed import Printed, tolerance


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
        Difference that rounding for print cannot explain (`rmutils.paper.printed.tolerance`).
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
