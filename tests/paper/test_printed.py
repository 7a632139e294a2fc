"""Printed numbers: intervals by hand, and honest rounding that must never be flagged."""

from fractions import Fraction

import numpy as np
import pytest

from rmutils.paper.comparisons import above, equal
from rmutils.paper.tables import Printed, mean, tolerance

read = Printed.read


@pytest.mark.parametrize(("text", "half"), [
    ("46.40", "0.005"), ("0.1", "0.05"), ("0.10", "0.005"), ("40", "0.5"), ("294K", "500"),
    ("5e-7", "5e-8"), ("2.5e-5", "5e-7"), ("-1.5", "0.05"),
])
def test_half_a_unit_in_the_last_place(text, half):
    number = read(text)
    assert number.high - number.value == number.value - number.low == Fraction(half)


@pytest.mark.parametrize("text", ["", "abc", "nan", "inf", "4.4 3.7", "K"])
def test_not_a_number(text):
    with pytest.raises(ValueError, match="is not a"):
        read(text)


def test_mean_of_seven_two_digit_numbers_may_be_off_by_less_than_a_hundredth():
    """(7 x 0.005) / 7 from the terms and 0.005 from the printed mean."""
    terms = [read(t) for t in ["95.13", "58.58", "3.09", "13.73", "83.80", "42.69", "27.81"]]
    assert mean(terms).value == Fraction("324.83") / 7
    assert tolerance(mean(terms), read("46.40")) == Fraction("0.01")


def test_relative_gain_of_rounded_means():
    """The mean score rises from 0.017 to 0.020: by 17.6 %, but anything in 11.4-24.2 % fits."""
    gain = (read("0.020") / read("0.017") - 1) * 100
    assert float(gain) == pytest.approx(100 * 3 / 17)
    assert float(gain.low) == pytest.approx(100 * (0.0195 / 0.0175 - 1))
    assert float(gain.high) == pytest.approx(100 * (0.0205 / 0.0165 - 1))
    with pytest.raises(ZeroDivisionError):
        read("1") / read("0.00")


@pytest.mark.parametrize(("a", "b", "agrees"), [
    ("45.75", "45.76", False), ("45.76", "45.76", True), ("0.1", "0.10", True),
    ("45.8", "45.76", True), ("45.7", "45.76", False), ("294K", "294121", True),
    ("295K", "294121", False),
])
def test_two_prints_of_one_number(a, b, agrees):
    assert equal("", "", read(a), "", read(b), "").agrees is agrees
    assert equal("", "", read(b), "", read(a), "").agrees is agrees


def test_above_is_contradicted_only_beyond_rounding():
    verdicts = [above("", "", read(a), "", read("52.14"), "").agrees
                for a in ("52.15", "52.14", "52.13", "51.97")]
    assert verdicts == [True, True, False, False]


def test_honest_rounding_never_disagrees():
    """Round exact numbers and what is computed from them: every check has to agree."""
    rng = np.random.default_rng(0)
    for exact in rng.uniform(1, 100, size=(500, 7)):
        terms = [read(f"{x:.2f}") for x in exact]
        computed = [(mean(terms), exact.mean()), (terms[0] - terms[1], exact[0] - exact[1]),
                    ((terms[0] / terms[1] - 1) * 100, (exact[0] / exact[1] - 1) * 100),
                    (terms[0] * terms[1], exact[0] * exact[1])]
        for a, b in computed:
            assert equal("", "", a, "", read(f"{b:.2f}"), "").agrees
