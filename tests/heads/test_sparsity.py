"""Measures of concentration: cases that can be done by hand, and what must hold for all."""

import numpy as np
import pytest

from rmutils.heads.sparsity import (
    BINS,
    bin_shares,
    effective_heads,
    gini,
    hoyer,
    share_above,
    share_at_zero,
    share_of_top,
    statistics,
)

RANDOM = np.random.default_rng(0).gamma(0.3, size=(5, 8))


def test_one_head_has_all():
    mean = np.zeros((3, 4))
    mean[1, 2] = 0.7
    assert gini(mean) == pytest.approx(11 / 12)
    assert hoyer(mean) == pytest.approx(1)
    assert effective_heads(mean) == pytest.approx(1)
    assert share_at_zero(mean) == 11 / 12 and share_above(mean, 0.7) == 1 / 12


def test_what_the_top_heads_have():
    mean = np.r_[np.full(38, 1.0), 31.0, 31.0].reshape(4, 10)  # the top 5 % are two of 40
    assert share_of_top(mean) == pytest.approx(0.62)
    assert share_of_top(np.stack([mean, np.ones((4, 10))])) == pytest.approx([0.62, 0.05])
    assert np.isnan(share_of_top(np.zeros((4, 10))))


def test_all_heads_alike():
    mean = np.full((3, 4), 0.2)
    assert gini(mean) == pytest.approx(0, abs=1e-12)
    assert hoyer(mean) == pytest.approx(0, abs=1e-12)
    assert effective_heads(mean) == pytest.approx(12)


def test_gini_is_half_the_relative_mean_difference():
    x = RANDOM.ravel()
    differences = sum(abs(a - b) for a in x for b in x) / len(x) ** 2
    assert gini(RANDOM) == pytest.approx(differences / (2 * x.mean()))


@pytest.mark.parametrize("measure", [gini, hoyer, effective_heads])
def test_scale_and_order_do_not_matter(measure):
    shuffled = np.random.default_rng(1).permutation(RANDOM.ravel()).reshape(8, 5)
    assert measure(7 * shuffled) == pytest.approx(measure(RANDOM))


def test_equal_heads_count_as_many():
    """Three heads alike and nine at zero: three effective heads."""
    mean = np.zeros(12)
    mean[:3] = 0.4
    assert effective_heads(mean.reshape(3, 4)) == pytest.approx(3)


def test_bins_by_hand():
    """A bin has its lower edge; scores above 1, which the published code gives, are in the last."""
    mean = np.array([[0, 0, 0.02, 0.05], [0.0999, 0.1, 0.3, 0.4999], [0.5, 1.0, 1.2, 0.7]])
    assert np.array(bin_shares(mean)) * 12 == pytest.approx([2, 1, 2, 3, 4])


def test_bins_hold_all_heads():
    assert sum(bin_shares(RANDOM)) == pytest.approx(1) and len(bin_shares(RANDOM)) == len(BINS)


@pytest.mark.filterwarnings("error")
def test_no_score_above_zero_cannot_be_shared_out():
    nothing = np.zeros((2, 3))
    assert all(np.isnan(measure(nothing)) for measure in (gini, hoyer, effective_heads))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", statistics())
def test_maps_below_each_other_are_measured_one_by_one(name):
    maps = np.random.default_rng(2).gamma(0.3, size=(7, 5, 8)).round(2)
    maps[3] = 0
    one_by_one = [statistics()[name](mean) for mean in maps]
    assert statistics()[name](maps) == pytest.approx(one_by_one, nan_ok=True)
