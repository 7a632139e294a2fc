"""Scores before and after a training: by hand, by a slow bootstrap, and where nothing changed."""

import numpy as np
import pandas as pd
import pytest

from rmutils.core.errors import UserError
from rmutils.heads import HeadScores
from rmutils.heads.head_change import (
    CHOSEN,
    FOUND,
    PairedDetection,
    head_changes,
    needles_found,
    split_half,
    training_effect,
)


def scores(runs, needles, success=None, model="m") -> HeadScores:
    """From scores of all cases, (cases, layers, heads); the failed ones are dropped."""
    runs, needles = np.asarray(runs, float), np.asarray(needles)
    success = np.ones(len(runs), bool) if success is None else np.asarray(success, bool)
    cases = pd.DataFrame({"case": np.arange(len(runs)), "needle": needles, "success": success})
    return HeadScores(runs[success], model, needles[success], cases)


def value(table: pd.DataFrame, group: str, quantity: str, column: str = "value"):
    row = table[(table["group"] == group) & (table["quantity"] == quantity)]
    return row[column].item()


@pytest.fixture
def pair():
    """Four cases of two needles, five heads of one layer; the second case is lost by training, the
    last one is won. The first two heads are the retrieval heads."""
    before = [[[.8, .6, .5, .1, .0]], [[.6, .4, .3, .1, .0]], [[.4, .2, .1, .1, .0]],
              [[.0, .0, .0, .0, .0]]]
    after = [[[.9, .8, .5, .1, .0]], [[.0, .0, .0, .0, .0]], [[.7, .4, .1, .1, .0]],
             [[.2, .0, .3, .1, .0]]]
    needles = [0, 0, 1, 1]
    return PairedDetection(scores(before, needles, [1, 1, 1, 0]),
                           scores(after, needles, [1, 0, 1, 1]), [(0, 0), (0, 1)])


def test_all_successful_cases_by_hand(pair):
    """Before: the mean of cases 1, 2, 3; after: of 1, 3, 4."""
    table = training_effect([pair])
    assert value(table, "retrieval heads", "before") == pytest.approx((.6 + .4) / 2)
    assert value(table, "retrieval heads", "after") == pytest.approx((.6 + .4) / 2)
    assert value(table, "retrieval heads", "change") == pytest.approx(0)
    assert value(table, "other heads", "change") == pytest.approx(0)
    assert value(table, "all heads", "before") == pytest.approx((.6 + .4 + .3 + .1) / 5)
    assert table.set_index("group")["heads"].to_dict() == {
        "all heads": 5, "retrieval heads": 2, "other heads": 3, "nearest other heads": 2,
        "retrieval minus other heads": 0, "retrieval minus nearest other heads": 0}


def test_cases_successful_both_times_by_hand(pair):
    """Cases 1 and 3 only. Nearest to them are the third and the fourth head."""
    table = training_effect([pair], cases="both")
    assert value(table, "retrieval heads", "before") == pytest.approx((.6 + .4) / 2)
    assert value(table, "retrieval heads", "after") == pytest.approx((.8 + .6) / 2)
    assert value(table, "retrieval heads", "change") == pytest.approx(.2)
    assert value(table, "retrieval heads", "relative change") == pytest.approx(.4)
    assert value(table, "nearest other heads", "before") == pytest.approx((.3 + .1) / 2)
    assert value(table, "retrieval minus nearest other heads", "change") == pytest.approx(.2)
    heads = head_changes([pair], cases="both")
    assert heads["head"].tolist() == [0, 1, 2, 3, 4] == (heads["rank"] - 1).tolist()
    assert heads["retrieval"].tolist() == [True, True, False, False, False]
    np.testing.assert_allclose(heads["change"], [.2, .2, 0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(heads["after"], [.8, .6, .3, .1, 0], atol=1e-12)


def test_needles_found_by_hand(pair):
    """Three of four cases each time, two of them both times; a needle is all lost or all won."""
    table = needles_found([pair])
    shares = [value(table, FOUND, name) for name in ("before", "after", "both", "change")]
    assert shares == [.75, .75, .5, 0]
    # from two needles hardly anything is known: the interval ends where a difference of shares does
    assert [value(table, FOUND, "change", end) for end in ("low", "high")] == [-1, 1]


def test_nearest_heads_surround_those_in_the_middle():
    """Not the highest others, if the heads in question are not the highest."""
    runs = [[[.9, .5, .48, .1, .09]]]
    middle = PairedDetection(scores(runs, [0]), scores(runs, [0]), [(0, 3), (0, 1)])
    assert sorted(middle.groups()["nearest other heads"]) == [2, 4]


RNG = np.random.default_rng(0)
NEEDLES = np.repeat(np.arange(12), 8)
TRUE = np.sort(RNG.beta(0.4, 4, 200))[::-1].reshape(10, 20)


def test_nothing_changed_is_exactly_zero():
    found = RNG.random(len(NEEDLES)) < 0.7
    same = scores(RNG.random((len(NEEDLES), 10, 20)), NEEDLES, found)
    pairs = [PairedDetection(same, same, same.select(top_k=20))] * 2
    for cases in ("successful", "both"):
        for measure in (training_effect, split_half):
            table = measure(pairs, cases=cases, resamples=100)
            change = table[table["quantity"].str.contains("change")]
            assert len(change) and (change[["value", "low", "high"]] == 0).all(axis=None)
    assert (head_changes(pairs)[["change", "change_low", "change_high"]] == 0).all(axis=None)


def test_regression_to_the_mean():
    """Both times the true scores, with fresh noise: heads chosen by the noise of the first time
    seem to have lost; on needles that had no say in the choice they have not."""
    naive, apart, covered = [], [], []
    for _ in range(30):
        noise = RNG.normal(0, 0.3, (2, 12, 10, 20))
        noisy = [scores(TRUE + each[NEEDLES], NEEDLES) for each in noise]
        pairs = [PairedDetection(*noisy, noisy[0].select(top_k=20))]
        half = split_half(pairs, resamples=200)
        naive.append(value(training_effect(pairs, resamples=50), "retrieval heads", "change"))
        apart.append(value(half, CHOSEN, "change"))
        covered.append(value(half, CHOSEN, "change", "low") <= 0
                       <= value(half, CHOSEN, "change", "high"))
    error = np.std(apart) / np.sqrt(len(apart))
    assert np.mean(naive) < -10 * error
    assert abs(np.mean(apart)) < 3 * error
    assert np.mean(covered) > 0.8


def test_split_half_finds_a_true_change():
    """The twenty best heads gain 0.1, and nobody else."""
    gain = np.zeros((10, 20))
    gain[0] = 0.1
    noise = [RNG.normal(0, 0.02, (12, 10, 20))[NEEDLES] for _ in range(2)]
    before, after = scores(TRUE + noise[0], NEEDLES), scores(TRUE + gain + noise[1], NEEDLES)
    pairs = [PairedDetection(before, after, before.select(top_k=20))]
    table = split_half(pairs)
    assert value(table, CHOSEN, "change") == pytest.approx(0.1, abs=0.02)
    assert value(table, CHOSEN, "change", "low") > 0.05


def test_interval_against_a_slow_bootstrap():
    """Draw needles and trainings with replacement; the same needles before and after. How far
    draws of three trainings and of twelve needles move the mean is stretched, by Student's t for
    the normal quantile and by the bias of a standard deviation."""
    stretch, of_needles = np.sqrt([3 / 2, 12 / 11]) * [4.3027, 2.2010] / 1.95996  # printed tables
    found = [RNG.random(len(NEEDLES)) < 0.8 for _ in range(4)]
    level = RNG.normal(0, 0.2, 12) + RNG.normal(0, 0.1, (4, 12))  # of needles, the same 4 times
    level += np.array([0, 0, 0.1, 0.2])[:, None]  # trainings differ
    runs = [TRUE + each[NEEDLES][:, None, None] + RNG.normal(0, 0.05, (len(NEEDLES), 10, 20))
            for each in level]
    before, *afters = [scores(*each, some) for each, some in
                       zip(zip(runs, [NEEDLES] * 4, strict=True), found, strict=True)]
    heads = before.select(top_k=20)
    layers, columns = map(list, zip(*heads, strict=True))
    means = [run[:, layers, columns].mean(1) for run in runs]
    whole = [m[f].mean() for m, f in zip(means, found, strict=True)]
    drawn = []
    for _ in range(3000):
        rows = np.concatenate([np.flatnonzero(i == NEEDLES) for i in RNG.integers(0, 12, 12)])
        first, *later = [all_ + of_needles * (m[rows][f[rows]].mean() - all_)
                         for m, f, all_ in zip(means, found, whole, strict=True)]
        some = np.mean([whole[1 + i] for i in RNG.integers(0, 3, 3)])
        drawn.append(np.mean(later) + stretch * (some - np.mean(whole[1:])) - first)
    table = training_effect([PairedDetection(before, after, heads) for after in afters],
                            resamples=3000)
    got = [value(table, "retrieval heads", "change", end) for end in ("low", "high")]
    np.testing.assert_allclose(got, np.quantile(drawn, [0.025, 0.975]), atol=0.008)
    assert np.ptp(got) > 0.08  # the tolerance is small beside it


def test_two_trainings_need_not_be_drawn(pair):
    """Then the interval is that of the needles: the same training twice, or once."""
    once, twice = (training_effect([pair] * count, drawn=False) for count in (1, 2))
    pd.testing.assert_frame_equal(once, twice)
    lower = PairedDetection(pair.after, pair.before, pair.heads)
    fixed, drawn = (training_effect([pair, lower], cases="both", drawn=one)
                    for one in (False, True))
    assert value(fixed, "all heads", "change") == pytest.approx(0, abs=1e-12)
    widths = [value(table, "all heads", "change", "high") - value(table, "all heads", "change",
              "low") for table in (fixed, drawn)]
    assert widths[0] < 1e-9 < widths[1]


def test_needles_that_are_never_found():
    """They can be drawn. A draw of them alone says nothing and is left out."""
    runs = RNG.random((3, 1, 4))
    rare = scores(runs, [0, 1, 2], [True, False, False])
    pairs = [PairedDetection(rare, rare, [(0, 0)])]
    table = training_effect(pairs)
    assert value(table, "retrieval heads", "before", "low") == pytest.approx(runs[0, 0, 0])
    assert np.isnan(value(split_half(pairs), CHOSEN, "before"))


def test_what_cannot_be_compared(pair):
    one = scores(np.ones((2, 1, 3)), [0, 0], [1, 0], "one")
    other = scores(np.ones((2, 1, 3)), [0, 0], [0, 1], "other")
    with pytest.raises(UserError, match="m and one: not the same cases.*rmutils detect"):
        PairedDetection(pair.before, one, [(0, 0)])
    with pytest.raises(UserError, match="not the same cases"):
        PairedDetection(HeadScores(np.ones((2, 1, 3)), "published"), one, [(0, 0)])
    for heads in ([], [(0, 0), (0, 1), (0, 2)]):
        with pytest.raises(UserError, match=f"{len(heads)} of 3 heads are retrieval heads"):
            PairedDetection(one, other, heads)
    apart = PairedDetection(one, other, [(0, 0)])
    with pytest.raises(UserError, match="no needle was found both before and after"):
        training_effect([apart], cases="both")
    with pytest.raises(UserError, match="one needle cannot be halved"):
        split_half([apart])
    with pytest.raises(UserError, match="different retrieval heads"):
        head_changes([apart, PairedDetection(one, other, [(0, 1)])])
