"""Pooling over studies, against published numbers, brute force and coverage."""

import numpy as np
import pytest
from scipy.stats import norm, t

from rmutils.stats import pool, standard_error

BCG = np.array([[4, 119, 11, 128], [6, 300, 29, 274], [3, 228, 11, 209], [62, 13536, 248, 12619],
                [33, 5036, 47, 5761], [180, 1361, 372, 1079], [8, 2537, 10, 619],
                [505, 87886, 499, 87892], [29, 7470, 45, 7232], [17, 1699, 65, 1600],
                [186, 50448, 141, 27197], [5, 2493, 3, 2338], [27, 16886, 29, 17825]])
"""Thirteen trials of a vaccine (Colditz et al., 1994): ill and well, vaccinated and not."""


def test_published_example():
    """Log risk ratios; Paule and Mandel's variance is 0.318 in Viechtbauer's R package metafor."""
    a, b, c, d = BCG.T
    effects = np.log(a / (a + b)) - np.log(c / (c + d))
    errors = np.sqrt(1 / a - 1 / (a + b) + 1 / c - 1 / (c + d))
    found = pool(effects, errors)
    assert found.between ** 2 == pytest.approx(0.318, abs=0.0005)
    assert found.value == pytest.approx(-0.715, abs=0.0005)
    assert (found.low, found.high) == pytest.approx((-1.109, -0.321), abs=0.002)


def test_variance_between_is_where_the_scatter_fits_the_weights():
    """By trying every variance on a grid, in plain loops."""
    effects, errors = [0.3, -0.2, 0.4, 1.4], [0.1, 0.2, 0.15, 0.5]
    best = min((abs(_scatter(effects, errors, v) - 3), v) for v in np.linspace(0, 1, 20_001))[1]
    found = pool(effects, errors)
    assert found.between ** 2 == pytest.approx(best, abs=1e-4)
    weights = [1 / (e * e + best) for e in errors]
    value = sum(w * y for w, y in zip(weights, effects, strict=True)) / sum(weights)
    half = t.ppf(0.975, 3) / sum(weights) ** 0.5
    assert found.interval == pytest.approx((value, value - half, value + half), abs=1e-3)


def _scatter(effects, errors, variance):
    total, middle = 0.0, 0.0
    for y, e in zip(effects, errors, strict=True):
        total += 1 / (e * e + variance)
        middle += y / (e * e + variance)
    return sum((y - middle / total) ** 2 / (e * e + variance)
               for y, e in zip(effects, errors, strict=True))


@pytest.mark.parametrize("between", [0.0, 1.0])
def test_interval_of_five_studies_holds_the_truth_as_often_as_it_says(between):
    rng = np.random.default_rng(0)
    errors = np.array([0.8, 1.0, 1.2, 1.4, 1.0])
    held = 0
    for _ in range(1000):
        found = pool(2 + rng.normal(0, np.sqrt(errors ** 2 + between)), errors)
        held += found.low <= 2 <= found.high
    assert 930 <= held <= 1000


def test_studies_that_agree_by_luck_are_not_surer_than_their_errors():
    found = pool([1.0, 1.0, 1.0], [0.5, 0.5, 0.5])
    assert found.between == 0
    assert found.high - found.value == pytest.approx(t.ppf(0.975, 2) * 0.5 / np.sqrt(3))


def test_error_that_an_interval_stands_for():
    assert standard_error(-norm.ppf(0.975), norm.ppf(0.975)) == pytest.approx(1)


@pytest.mark.parametrize(("effects", "errors"), [([1.0], [1.0]), ([1, 2], [0, 1]),
                                                 ([1, np.nan], [1, 1])])
def test_what_cannot_be_pooled_is_refused(effects, errors):
    with pytest.raises(ValueError, match="two or more"):
        pool(effects, errors)
