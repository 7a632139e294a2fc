"""The rule of the verdicts: hand-made effects against hand-made claims."""

import numpy as np
import pytest
from pydantic import ValidationError

from rmutils.paper.verdicts import (
    NOT,
    NOT_RUN,
    PARTLY,
    REPRODUCED,
    UNDECIDED,
    Claimed,
    Effect,
    contradiction,
    more_needed,
    together,
    verdict,
)
from rmutils.stats import Interval


def effect(low: float, high: float, value: float | None = None) -> Effect:
    return Effect((low + high) / 2 if value is None else value, low, high, "points", ())


@pytest.mark.parametrize(("low", "high", "expected"), [
    (0.1, 0.5, REPRODUCED), (-0.5, -0.1, NOT), (-0.1, 0.5, UNDECIDED),
    (0, 0.5, UNDECIDED), (-0.5, 0, NOT), (0, 0, NOT), (1e-9, 1e-9, REPRODUCED),
    (np.nan, np.nan, UNDECIDED), (-np.inf, np.inf, UNDECIDED)])
def test_one_bound(low, high, expected):
    """The bound itself is not on the claimed side."""
    assert verdict(effect(low, high), Claimed(above=0)) == expected
    assert verdict(effect(-high, -low), Claimed(below=0)) == expected
    assert verdict(effect(low + 7, high + 7), Claimed(above=7)) == expected


@pytest.mark.parametrize(("low", "high", "expected"), [
    (2.0, 4.0, REPRODUCED),  # holds the size
    (3.0, 4.0, REPRODUCED),  # beyond it
    (0.1, 2.28, REPRODUCED),  # just reaches it
    (0.1, 2.27, PARTLY), (0, 2.0, UNDECIDED), (-1, 4, UNDECIDED), (-1, -0.5, NOT)])
def test_size(low, high, expected):
    assert verdict(effect(low, high), Claimed(above=0, size=2.28)) == expected
    assert verdict(effect(-high, -low), Claimed(below=0, size=-2.28)) == expected


@pytest.mark.parametrize(("low", "high", "expected"), [
    (0.05, 0.09, REPRODUCED), (0.01, 0.04, NOT), (0.1, 0.3, NOT), (0.15, 0.15, NOT),
    (0.03, 0.05, UNDECIDED), (0.09, 0.11, UNDECIDED), (0.0, 0.5, UNDECIDED)])
def test_two_bounds(low, high, expected):
    assert verdict(effect(low, high), Claimed(above=0.04, below=0.1)) == expected


@pytest.mark.parametrize(("parts", "expected"), [
    ([REPRODUCED, REPRODUCED], REPRODUCED), ([PARTLY], PARTLY), ([NOT, NOT], NOT),
    ([UNDECIDED, UNDECIDED], UNDECIDED), ([REPRODUCED, UNDECIDED], PARTLY),
    ([REPRODUCED, NOT], PARTLY), ([PARTLY, NOT], PARTLY), ([PARTLY, REPRODUCED], PARTLY),
    ([NOT, UNDECIDED], NOT), ([REPRODUCED, NOT_RUN], NOT_RUN), ([NOT, NOT_RUN], NOT_RUN)])
def test_parts_together(parts, expected):
    assert together(parts) == together(parts[::-1]) == expected


@pytest.mark.parametrize("wrong", [
    {}, {"size": 1}, {"above": 1, "below": 1}, {"above": 2, "below": 1}, {"above": 0, "size": -1},
    {"above": 0, "size": 0}, {"above": 0, "below": 1, "size": 0.5}, {"over": 0}])
def test_claims_that_make_no_sense(wrong):
    with pytest.raises(ValidationError):
        Claimed(**wrong)


def test_words():
    assert Claimed(above=0, size=0.7).words == "above 0, 0.7 or more"
    assert Claimed(below=0, size=-0.24).words == "below 0, -0.24 or less"
    assert Claimed(above=0.04, below=0.1).words == "above 0.04 and below 0.1"


def test_from_an_interval():
    assert Effect.of(Interval(5, 2.5, 7), "points", ["a"]) == Effect(5, 2.5, 7, "points", ("a",))


def test_distance_and_what_would_decide():
    """A value 2 below the bound, with half an interval of 1, is twice that away. One of 0.5 with an
    interval of +-0.98 has a standard error of 0.5 and sees 2.8 times that: 1.4. To see 0.5 takes
    (1.4 / 0.5)^2 times the data."""
    assert contradiction(effect(-3, -1), Claimed(above=0)) == 2
    assert contradiction(effect(-3, -1), Claimed(below=0)) == 0
    assert contradiction(effect(0.3, 0.5), Claimed(above=0, below=0.2)) == pytest.approx(2)
    assert contradiction(effect(0.3, 0.3), Claimed(below=0.2)) == np.inf
    assert contradiction(effect(0.3, 0.3), Claimed(above=0.2)) == 0
    seen = effect(0.5 - 0.98, 0.5 + 0.98)
    assert seen.smallest == pytest.approx(1.4, abs=0.01)
    assert more_needed(seen, Claimed(above=0)) == pytest.approx((1.4 / 0.5) ** 2, rel=0.01)
    assert more_needed(effect(-1, 1), Claimed(above=0)) == np.inf
