"""Bootstrap over clusters, against enumeration and loops."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np

from rmutils.stats import cluster_bootstrap, percentiles


def test_against_all_27_draws():
    """Three clusters of unequal size can be drawn in 27 ways, each as likely as the others."""
    values = np.array([1.0, 2.0, 10.0, 4.0, 5.0, 6.0])
    clusters = np.array(["x", "x", "y", "z", "z", "z"])
    groups = [values[clusters == name] for name in "xyz"]
    exact = Counter(round(np.concatenate(draw).mean(), 9) for draw in product(groups, repeat=3))
    sampled = Counter(np.round(cluster_bootstrap(values, clusters, resamples=20000), 9).tolist())
    assert set(sampled) == set(exact)
    for mean, ways in exact.items():
        assert abs(sampled[mean] / 20000 - ways / 27) < 0.012


def test_shape_and_no_clusters():
    """Every column is drawn with the same cases; without clusters each case is its own."""
    values = np.random.default_rng(0).normal(size=(7, 2, 3))
    values[:, 1] = 2 * values[:, 0]
    means = cluster_bootstrap(values, None, resamples=50, seed=3)
    assert means.shape == (50, 2, 3)
    np.testing.assert_allclose(means[:, 1], 2 * means[:, 0])
    np.testing.assert_array_equal(means, cluster_bootstrap(values, np.arange(7), resamples=50,
                                                           seed=3))
    assert not np.array_equal(means, cluster_bootstrap(values, None, resamples=50, seed=4))


def test_intervals_cover():
    """Of 300 intervals of 95 % from 40 values, about 95 % hold the true mean."""
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(300):
        low, high = percentiles(cluster_bootstrap(rng.normal(size=40), None, resamples=400))
        hits += low <= 0 <= high
    assert 0.89 < hits / 300 < 0.98


def test_percentiles_of_known_numbers():
    """0, 1, ..., 100: 90 % of them lie between 5 and 95."""
    samples = np.arange(101.0)[:, None] * [1, 10]
    np.testing.assert_allclose(percentiles(samples, 0.9), [[5, 95], [50, 950]])
