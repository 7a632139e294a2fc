"""Intervals and comparisons: by hand, by loops, against scipy, and where the truth is known."""

from collections import Counter
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from rmutils.core.errors import UserError
from rmutils.stats import (
    DIFFERENCE,
    POINTS,
    POSITIVE,
    RELATIVE,
    SHARE,
    Interval,
    compare,
    contrast,
    crossed_interval,
    draws,
    expansion,
    holm,
    interval,
    interval_of,
    interval_p,
    paired,
    sign_flip_test,
    smallest_effect,
    smallest_p,
    spread,
)

SEEDS, SAMPLES = 5, 40


def test_against_all_27_draws():
    """Three clusters of unequal size can be drawn in 27 ways, each as likely as the others; how far
    each of them lies from the mean is stretched."""
    values = np.array([1.0, 2.0, 10.0, 4.0, 5.0, 6.0])
    clusters = np.array(["x", "x", "y", "z", "z", "z"])
    groups = [values[clusters == name] for name in "xyz"]
    exact = Counter(round(np.concatenate(draw).mean(), 6) for draw in product(groups, repeat=3))
    mean, *drawn = draws(values, clusters, resamples=20000)
    assert mean == values.mean()
    stretch = np.sqrt(3 / 2) * 4.3026527 / 1.9599640  # quantiles from a printed table
    sampled = Counter(np.round(mean + (np.array(drawn) - mean) / stretch, 6).tolist())
    assert set(sampled) == set(exact)
    for one, ways in exact.items():
        assert abs(sampled[one] / 20000 - ways / 27) < 0.012


def test_all_columns_are_drawn_with_the_same_cases():
    """Without clusters, each case is its own."""
    values = np.random.default_rng(0).normal(size=(7, 2, 3))
    values[:, 1] = 2 * values[:, 0]
    means = draws(values, resamples=50, seed=3)
    assert means.shape == (51, 2, 3)
    np.testing.assert_allclose(means[:, 1], 2 * means[:, 0])
    np.testing.assert_array_equal(means, draws(values, np.arange(7), resamples=50, seed=3))
    assert not np.array_equal(means, draws(values, resamples=50, seed=4))


@pytest.mark.parametrize("count", [4, 8, 40])
def test_intervals_of_few_and_many_cover(count):
    """Of 400 intervals of 95 %, about 95 % hold the true mean; unspread, those from four values
    would be far too short."""
    rng = np.random.default_rng(5)
    values = rng.normal(size=(count, 400))
    found = interval(values, resamples=400)
    assert 0.9 < ((found.low <= 0) & (found.high >= 0)).mean() < 0.98
    if count == 4:
        low, high = found.value + (np.array(found[1:]) - found.value) / expansion(4)
        assert ((low <= 0) & (high >= 0)).mean() < 0.85


def test_interval_of_known_numbers():
    """0, 1, ..., 100: 90 % of them lie between 5 and 95, whatever is unknown beside them."""
    samples = np.r_[50.0, np.arange(101.0), np.nan, np.inf][:, None] * [1, 10]
    found = interval_of(samples, level=0.9)
    np.testing.assert_allclose(found, [[50, 500], [5, 50], [95, 950]])
    assert np.isnan(interval_of([3, np.nan, np.nan])[1:]).all()
    assert np.isnan(interval([3.0])[1:]).all() and interval([3.0]).value == 3  # nothing to draw


def test_intervals_end_where_the_quantity_does():
    found = [1.0] * 9 + [0.0]
    assert interval(found).high > 1 > interval(found).low
    assert interval(found, bounds=SHARE).high == 1
    assert interval(found, bounds=SHARE).low == interval(found).low
    assert interval([-1.0, -1, -1, 0], bounds=DIFFERENCE).low == -1


@pytest.mark.parametrize("bounds, values, side, end", [
    (RELATIVE, [-1.0, -1, -1, 5], "low", -1), (POSITIVE, [0.0, 0, 0, 5], "low", 0),
    (POINTS, [0.0, 0, 0, 50], "low", 0), (POINTS, [100.0, 100, 100, 50], "high", 100),
    (DIFFERENCE, [1.0, 1, 1, 0], "high", 1)])
def test_bounds_of_each_kind(bounds, values, side, end):
    free, bounded = interval(values), interval(values, bounds=bounds)
    assert getattr(bounded, side) == end != getattr(free, side)
    other = {"low": "high", "high": "low"}[side]
    if bounds in (RELATIVE, POSITIVE):  # open at the other end
        assert getattr(bounded, other) == getattr(free, other) > 5


def test_defaults_are_those_of_stored_results():
    """Else a number in the book would not be found again from its data."""
    values = np.random.default_rng(9).normal(size=(20, 1))
    table = pd.concat([rows(name, values.T.tolist()) for name in "ab"])
    table.loc[table["strategy"] == "b", "score"] *= 2
    known = {"resamples": 2000, "seed": 0}
    assert interval(values[:, 0]) == interval(values[:, 0], **known)
    drawn = draws(values[:, 0])
    np.testing.assert_array_equal(drawn, draws(values[:, 0], **known, level=0.95))
    assert interval_of(drawn) == interval_of(drawn, level=0.95)
    assert not np.array_equal(drawn, draws(values[:, 0], level=0.9))
    pd.testing.assert_frame_equal(compare(table, "a"), compare(table, "a", seed=0))
    assert not compare(table, "a")["low"].equals(compare(table, "a", seed=1)["low"])
    assert sign_flip_test(values) == sign_flip_test(values, flips=9999, seed=0)
    assert sign_flip_test(values) != sign_flip_test(values, flips=9999, seed=1)
    assert compare(table, "a")["p"].item() == sign_flip_test(values)


def test_an_interval_holds_its_estimate_or_is_refused():
    """More needles have fewer heads that never score, so draws lie to one side of the estimate."""
    often, chance = (np.random.default_rng(n).random(s) for n, s in ((2, 200), (3, (30, 200))))
    scores = np.random.default_rng(1).random((30, 200)) * (often / 5 > chance)
    zero = (np.clip(draws(scores), 0, 1).round(9) == 0).mean(1)
    with pytest.raises(ValueError, match="hold its own estimate"):
        interval_of(zero, bounds=SHARE)
    found = interval_of(zero, bounds=SHARE, centred=True)
    assert found.low < found.value == (scores.mean(0) == 0).mean() < found.high
    assert found.high - found.low == pytest.approx(np.ptp(np.quantile(zero[1:], [0.025, 0.975])))
    with pytest.raises(ValueError, match="out of bounds"):
        interval([1.0, 2.0], bounds=SHARE)
    assert interval([0.1] * 7) == Interval(*[pytest.approx(0.1)] * 3)  # equal but for rounding


def test_two_seeds_that_differ_have_a_wide_interval():
    """All samples alike, so seeds alone decide: their draws reach from 0 to 2, and two values say
    so little that Student's t widens that to -8.2 and 10.2."""
    wide = stats.t.ppf(0.975, 1) / stats.norm.ppf(0.975) * 2**0.5
    value, low, high = interval(np.tile([0.0, 2.0], (10, 1)), seeds=True)
    assert (value, low, high) == pytest.approx((1, 1 - wide, 1 + wide)) and low < -8


def test_rule_of_three():
    """None of 20 cases shows it: up to 3 / 20 of all may. Where some do, nothing changes."""
    assert interval([0.0] * 20, bounds=SHARE, cases=20) == (0, 0, 0.15)
    assert interval([1.0] * 20, bounds=SHARE, cases=20) == (1, 0.85, 1)
    assert interval([0.0] * 20, bounds=DIFFERENCE, cases=20) == (0, -0.15, 0.15)
    some = [0.0] * 19 + [1.0]
    assert interval(some, bounds=SHARE, cases=20) == interval(some, bounds=SHARE)
    close = [0.5, 0.5001] * 10  # hardly different, but they are
    assert interval(close, bounds=SHARE, cases=20) == interval(close, bounds=SHARE)


def test_other_statistics_are_spread_as_means_are():
    values = np.random.default_rng(4).normal(size=6)
    rng = np.random.default_rng(0)
    slow = [np.median(values), *(np.median(rng.choice(values, 6)) for _ in range(300))]
    drawn = spread(np.array(slow), 6)
    assert drawn[0] == slow[0]
    np.testing.assert_allclose(drawn - slow[0], expansion(6) * (np.array(slow) - slow[0]))
    assert np.isnan(spread(np.array([1.0, 1.0]), 1)[1])


def rows(strategy: str, scores: list[list[float]], **more) -> pd.DataFrame:
    """A tidy table of scores[seed][sample]."""
    return pd.DataFrame([
        {"strategy": strategy, "seed": seed, "sample": sample, "score": score,
         **{name: values[sample] for name, values in more.items()}}
        for seed, of_seed in enumerate(scores) for sample, score in enumerate(of_seed)])


def experiment(rng, effect=0.0, seeds=1.0, samples=1.0, both=1.0) -> np.ndarray:
    """(samples, seeds): differences with a known mean, and chance of a known size in each part."""
    return (effect + seeds * rng.normal(size=SEEDS) + samples * rng.normal(size=(SAMPLES, 1))
            + both * rng.normal(size=(SAMPLES, SEEDS)))


def test_by_hand():
    """Two trainings against a model before training, on two samples of each of two tasks."""
    task = {"stratum": ["a", "a", "a", "b", "b"]}
    table = pd.concat([
        rows("before", [[0, 1, np.nan, 2, 4]], **task),  # the third was not scored
        rows("better", [[2, 3, 9, 4, 8], [4, 5, 9, 4, 8]], **task),
        rows("same", [[0, 1, 0, 2, 4], [0, 1, 0, 2, 4]], **task)])
    found = compare(table, "before").set_index("strategy")
    assert list(found.index) == ["better", "same"]
    assert list(found) == ["effect", "low", "high", "p", "p_holm", "smallest_effect", "seeds",
                           "samples", "clusters"]
    # better: 3 (mean of 2 and 4) on each sample of a, 2 and 4 on those of b
    assert found["effect"].tolist() == [3, 0]
    assert found["seeds"].tolist() == [2, 2] and found["samples"].tolist() == [4, 4]
    assert found["p"].isna().all() and found["p_holm"].isna().all()  # 4 clusters: p is 1/8 at least
    assert found["clusters"].tolist() == [4, 4]
    assert found.loc["same", ["low", "high", "smallest_effect"]].tolist() == [0, 0, 0]
    assert found.loc["better", "low"] < 3 < found.loc["better", "high"]


def test_seeds_are_paired_where_both_have_some():
    table = pd.concat([rows("base", [[1, 2], [5, 6], [0, 0]]), rows("other", [[2, 3], [6, 7]])])
    values, clusters, strata = paired(table, "other", "base")
    assert (values[..., 0] - values[..., 1] == 1).all() and values.shape == (2, 2, 2)
    assert clusters.tolist() == [0, 1] and strata.tolist() == [0, 0]
    tasks = table.assign(stratum=table["sample"].map(["x", "y", "z"].__getitem__))
    assert paired(tasks, "other", "base")[2].tolist() == ["x", "y"]
    found = compare(table, "base").iloc[0]
    assert found[["effect", "low", "high"]].tolist() == [1, 1, 1] and found["seeds"] == 2


def test_what_cannot_be_compared():
    table = pd.concat([rows("a", [[1, 2]] * 2), rows("b", [[1, 2]] * 4)])
    with pytest.raises(ValueError, match="no scores of c"):
        compare(table, "c")
    with pytest.raises(ValueError, match="duplicate"):
        compare(pd.concat([table, table]), "a")
    apart = table[(table["strategy"] == "a") | (table["seed"] > 1)]
    with pytest.raises(ValueError, match="b and a have no seed in common"):
        compare(apart, "a")
    with pytest.raises(UserError, match="questions, needles, texts or samples"):
        compare(table.assign(cluster=0), "a")


def test_against_scipy():
    """With one training and many samples, it is the ordinary percentile interval of a mean."""
    values = np.random.default_rng(1).exponential(size=400)
    ours = interval(values, resamples=9999)[1:]
    theirs = stats.bootstrap((values,), np.mean, method="percentile", random_state=2)
    np.testing.assert_allclose(ours, theirs.confidence_interval, atol=0.006)
    assert np.ptp(ours) > 0.15  # the tolerance is small beside it


def test_against_loops():
    """Draw clusters within tasks and, apart from them, seeds; spread the draws out."""
    rng = np.random.default_rng(3)
    values = experiment(rng)
    task = np.arange(SAMPLES) % 2
    cluster = np.arange(SAMPLES) // 4  # ten in each task, of two samples each
    means = np.array([values[task == one].mean(0) for one in (0, 1)])

    def spread(count):
        return stats.t.ppf(0.975, count - 1) / 1.959964 * np.sqrt(count / (count - 1))

    drawn = []
    for _ in range(5000):
        moved = 0
        for one in (0, 1):
            groups = [values[(task == one) & (cluster == name)].mean(1) for name in range(10)]
            sample = np.concatenate([groups[i] for i in rng.integers(10, size=10)])
            moved += spread(10) * (sample.mean() - means[one].mean()) / 2
        of_seeds = means.mean(0)
        moved += spread(5) * (of_seeds[rng.integers(5, size=5)].mean() - of_seeds.mean())
        drawn.append(of_seeds.mean() + moved)
    value, *ours = interval(values, cluster, task, seeds=True, resamples=20000)
    assert value == pytest.approx(values.mean())
    np.testing.assert_allclose(ours, np.quantile(drawn, [0.025, 0.975]),
                               atol=0.15)
    assert np.ptp(ours) > 1


@pytest.mark.parametrize(("parts", "least", "most"), [
    ({"samples": 0, "both": 0}, 0.92, 0.98), ({"seeds": 0, "both": 0}, 0.92, 0.98),
    ({}, 0.92, 0.99), ({"samples": 0, "seeds": 0}, 0.95, 1)])
def test_intervals_cover(parts, least, most):
    """Of intervals of 95 %, about 95 % hold the truth, wherever the chance comes from; more, if all
    of it lies in single samples under single seeds."""
    rng = np.random.default_rng(4)
    ends = np.array([interval(experiment(rng, **parts), seeds=True, resamples=400)[1:]
                     for _ in range(400)])
    assert least < ((ends[:, 0] <= 0) & (ends[:, 1] >= 0)).mean() < most


def test_samples_of_one_context_are_one():
    """Copies of samples add nothing, unless one forgets that they are copies."""
    values = experiment(np.random.default_rng(5), seeds=0)
    copies, labels = np.tile(values, (4, 1)), np.tile(np.arange(SAMPLES), 4)
    np.testing.assert_allclose(draws(copies, labels, seeds=True), draws(values, seeds=True))
    assert sign_flip_test(copies, labels) == sign_flip_test(values)
    careless = np.ptp(interval(copies, seeds=True)[1:])
    assert careless < 0.7 * np.ptp(interval(values, seeds=True)[1:])


def test_sign_flips_by_enumeration():
    """Seven clusters of unequal size in two tasks: 128 patterns, looked at one by one."""
    rng = np.random.default_rng(7)
    clusters = np.array([0, 0, 1, 2, 2, 2, 3, 4, 5, 5, 6, 6])
    strata = (clusters > 3).astype(int)
    values = rng.normal(0.3, 1, (12, 3))

    def mean(signs):
        flipped = values * np.asarray(signs)[clusters, None]
        return np.mean([flipped[strata == one].mean() for one in (0, 1)])

    observed = abs(mean([1] * 7))
    as_large = [abs(mean(signs)) >= observed - 1e-12 for signs in product((-1, 1), repeat=7)]
    exact = sign_flip_test(values, clusters, strata)
    assert exact == pytest.approx(np.mean(as_large)) and 0.02 < exact < 0.9
    assert sign_flip_test(values, clusters, strata, flips=127) != exact  # now they are drawn


@pytest.mark.parametrize("clusters, apart", [(9, 0), (13, 0), (40, 0.02)])
def test_sign_flips_are_those_of_scipy(clusters, apart):
    """Exact up to thirteen clusters, then within the error of so many draws; whole numbers tie."""
    values = np.random.default_rng(clusters).integers(-2, 4, (clusters, 1)).astype(float)
    theirs = stats.permutation_test(
        (values[:, 0],), lambda x, axis: abs(x.sum(axis)), permutation_type="samples",
        vectorized=True, alternative="greater", n_resamples=9999, random_state=1)
    assert abs(sign_flip_test(values) - theirs.pvalue) <= apart + 1e-9


def test_drawn_sign_flips():
    """(1 + k) / (1 + n): never zero, and near the paired t-test where that is right."""
    values = np.random.default_rng(7).normal(0.3, 1, (60, 1))
    assert sign_flip_test(values) == pytest.approx(stats.ttest_1samp(values[:, 0], 0).pvalue,
                                                   rel=0.3)
    assert sign_flip_test(values + 5, flips=999) == 1 / 1000


def test_holm_by_hand():
    """0.005 x 4, 0.01 x 3, 0.03 x 2; 0.04 x 1 would be less than the one before."""
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]).tolist() == [1, 1] and holm([]).tolist() == []


@pytest.mark.parametrize("parts", [{"samples": 0, "both": 0}, {"seeds": 0, "both": 0.5}])
def test_smallest_effect_is_seen_in_four_of_five_repetitions(parts):
    rng = np.random.default_rng(8)
    ends = [interval(experiment(rng, **parts), seeds=True, resamples=400)[1:]
            for _ in range(200)]
    effect = np.mean([smallest_effect(*each) for each in ends])
    seen = [interval(experiment(rng, effect, **parts), seeds=True, resamples=400).low > 0
            for _ in range(400)]
    assert 0.73 < np.mean(seen) < 0.88


@pytest.mark.parametrize("clusters", [6, 20, 1000])
def test_p_of_an_interval_never_contradicts_it(clusters):
    """0.05 at the end that faces the bound, 1 at the estimate; by Student's t in between."""
    found = Interval(2.0, 1.0, 4.0)
    assert interval_p(found, 1.0, clusters) == pytest.approx(0.05)
    assert interval_p(found, 4.0, clusters) == pytest.approx(0.05)
    assert interval_p(found, 2.0, clusters) == 1
    assert interval_p(found, 0.9, clusters) < 0.05 < interval_p(found, 1.1, clusters)
    half = stats.t.ppf(0.975, clusters - 1) / 2
    assert interval_p(found, 1.5, clusters) == pytest.approx(
        2 * stats.t.sf(half, clusters - 1))
    assert interval_p(found, -99, clusters) >= smallest_p(clusters) == 2 ** (1 - clusters)
    assert interval_p(Interval(2.0, np.nan, np.nan), 0, clusters) == 1
    assert interval_p(Interval(2.0, 2.0, 2.0), 0, clusters) == smallest_p(clusters)


def test_smallest_p_is_that_of_the_sign_flip_test():
    for clusters in (3, 5, 8):
        values = np.arange(1.0, clusters + 1)[:, None]
        assert sign_flip_test(values) == smallest_p(clusters)


def test_a_contrast_counts_clusters_within_tasks_and_all_their_signs():
    """Six clusters of two tasks, two seeds: all 64 patterns of signs, by loops."""
    rng = np.random.default_rng(11)
    values = rng.normal(0.6, 1, size=(12, 2))
    clusters, strata = np.tile(np.repeat([0, 1, 2], 2), 2), np.repeat(["a", "b"], 6)
    found = contrast(values, clusters, strata)
    sums = [values[(clusters == one) & (strata == task)].mean(1).sum()
            for task in "ab" for one in range(3)]
    large = [abs(np.dot(signs, sums)) >= abs(sum(sums)) - 1e-9
             for signs in product([-1, 1], repeat=6)]
    assert found.p == np.mean(large)
    assert (found.clusters, found.seeds) == (6, 2)
    assert found.value == pytest.approx(values.mean())
    assert found.low < found.value < found.high
    assert found.smallest_effect == smallest_effect(found.low, found.high)
    assert contrast(values.mean(1), clusters, strata).p == found.p


def test_comparisons_that_are_planned_count_before_they_are_made():
    p = [0.01, 0.02]
    assert holm(p, planned=4).tolist() == pytest.approx([0.04, 0.06])
    assert holm(p, planned=2).tolist() == holm(p).tolist() == pytest.approx([0.02, 0.02])


def normal(rng, sizes, clusters, draws, noise):
    """Values of clusters by draws whose true mean is 0."""
    return (clusters * rng.normal(size=(sizes[0], 1)) + draws * rng.normal(size=(1, sizes[1]))
            + noise * rng.normal(size=sizes))


@pytest.mark.parametrize(("sizes", "tasks"), [((8, 5), 1), ((32, 12), 1), ((25, 5), 5)])
@pytest.mark.parametrize("effects", [(1, 0, 0.3), (1, 1, 1)])
def test_crossed_intervals_cover_what_they_say(sizes, tasks, effects):
    """From eight clusters and five draws up, and over tasks of five clusters each."""
    rng, strata = np.random.default_rng(0), np.arange(sizes[0]) % tasks
    held = [low <= 0 <= high for _, low, high in (
        crossed_interval(normal(rng, sizes, *effects), strata=strata) for _ in range(1000))]
    assert np.mean(held) + 0.005 >= 0.94 and np.mean(held) - 0.005 <= 0.97


def test_crossed_intervals_of_shares_cover():
    """Needles that are found or not, without random heads; and pure noise is covered too often."""
    rng = np.random.default_rng(0)
    found = [crossed_interval(normal(rng, (32, 12), 1, 0.5, 1) > 0, bounds=(0, 1))
             for _ in range(1000)]
    assert 0.94 <= np.mean([low <= 0.5 <= high for _, low, high in found]) <= 0.97
    noise = [crossed_interval(rng.normal(size=(8, 5))) for _ in range(1000)]
    assert 0.97 <= np.mean([low <= 0 <= high for _, low, high in noise]) <= 0.99


def test_a_crossed_interval_by_hand():
    """From the table of an analysis of variance, clusters of two samples each."""
    rng = np.random.default_rng(3)
    table = normal(rng, (9, 6), 1, 1, 0.3)
    mean, rows, columns = table.mean(), table.mean(1), table.mean(0)
    by_rows, by_columns = 6 * rows.var(ddof=1), 9 * columns.var(ddof=1)
    left = sum((table[i, j] - rows[i] - columns[j] + mean) ** 2
               for i in range(9) for j in range(6)) / (8 * 5)
    half = np.sqrt((by_rows * stats.t.ppf(0.975, 8) ** 2 + by_columns * stats.t.ppf(0.975, 5) ** 2
                    - left * stats.t.ppf(0.975, 40) ** 2) / 54)
    wanted = pytest.approx((mean, mean - half, mean + half))
    assert tuple(crossed_interval(table)) == wanted
    twice = np.concatenate([table - 0.5, table + 0.5])  # a cluster's value is its mean
    assert tuple(crossed_interval(twice, [*range(9)] * 2)) == wanted
    one = crossed_interval(table[:, 0])
    assert (one.low, one.high) == pytest.approx(stats.t.interval(
        0.95, 8, one.value, stats.sem(table[:, 0])))


@pytest.mark.parametrize("sizes", [(7, 12), (32, 4), (7, 1)])
def test_too_few_clusters_or_draws_have_no_crossed_interval(sizes):
    value, low, high = crossed_interval(np.arange(np.prod(sizes)).reshape(sizes))
    assert value == pytest.approx((np.prod(sizes) - 1) / 2) and np.isnan([low, high]).all()
