"""Concentration and stability of scores: by hand, and what must hold for all."""

from itertools import combinations

import numpy as np
import pytest

from rmutils.heads import HeadScores
from rmutils.heads.sparsity import (
    BINS,
    COLUMNS,
    bin_shares,
    effective_heads,
    gini,
    hoyer,
    ranking_stability,
    recall_of_detections,
    share_above,
    share_at_zero,
    share_of_top,
    statistics,
    top_overlap,
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


RNG = np.random.default_rng(0)
TRUE = np.linspace(0, 1, 40).reshape(5, 8)
NEEDLES = np.repeat(np.arange(10), 6)


def test_all_needles_agree_with_themselves():
    noisy = HeadScores(TRUE + RNG.normal(0, 0.3, (60, 5, 8)), "m", NEEDLES)
    table = ranking_stability(noisy, [2, 10], top_k=8)
    assert table.columns.tolist() == COLUMNS and table["count"].tolist() == [2, 10]
    full = table.iloc[1]
    assert full[COLUMNS[1:]].tolist() == pytest.approx([1.0] * 6)
    assert 0.3 < table["overlap"][0] < 1 and 0.5 < table["spearman"][0] < 1


def test_whole_needles_are_drawn():
    """One needle knows the heads, nine know nothing: a draw of one finds all of them or few."""
    runs = np.zeros((60, 5, 8))
    runs[NEEDLES == 3] = TRUE
    table = ranking_stability(HeadScores(runs, "m", NEEDLES), [1], top_k=4, draws=200)
    right = 0.1
    by_chance = 4 / 40
    assert table["overlap"][0] == pytest.approx(right + (1 - right) * by_chance, abs=0.08)
    assert table["spearman"][0] == pytest.approx(right, abs=0.08)


def test_few_needles_are_counted_by_the_threshold():
    """Four needles, two of which know heads 0 and 1, the others head 0 alone: all needles find both
    at tau = 0.5, and of the choices of three those with both of the first two. Head 1 leads the
    rest in any choice, so the highest two heads would always be right."""
    runs = np.tile([1.0, 0.5, 0.0], (8, 1, 1))
    runs[:4, 0, 1] = 0.6
    runs[4:, 0, 1] = 0.4
    scores = HeadScores(runs, "m", np.repeat(range(4), 2))
    found, choices = recall_of_detections(scores, 3, tau=0.5)
    assert sorted(choices) == [0.5, 0.5, 1, 1] and found.value == 0.75
    assert found.low < 0.75 <= found.high <= 1


def test_few_needles_by_hand_and_by_the_class_itself():
    """Every choice against `HeadScores.select`, with needles of different numbers of runs."""
    labels = np.repeat(np.arange(6), [9, 4, 2, 7, 5, 3])
    offsets = np.random.default_rng(3).normal(0, 0.15, (6, 40))
    runs = np.clip(TRUE.ravel() + offsets[labels], 0, 1).reshape(-1, 5, 8)
    scores = HeadScores(runs, "m", labels)
    every = {*scores.select(tau=0.5)}
    shares = [len(every & {*HeadScores(runs[np.isin(labels, three)], "m").select(tau=0.5)})
              / len(every) for three in combinations(range(6), 3)]
    found, choices = recall_of_detections(scores, 3, tau=0.5)
    assert choices.tolist() == pytest.approx(shares) and found.value == pytest.approx(
        np.mean(shares))
    more = np.tile(offsets, (5, 1))  # five times as many needles of the same kind: less chance
    many = HeadScores(np.clip(TRUE.ravel() + more, 0, 1).reshape(-1, 5, 8), "m", np.arange(30))
    tight, _ = recall_of_detections(many, 3, tau=0.5)
    assert tight.high - tight.low < found.high - found.low


def test_top_overlap_by_hand():
    """Heads 0 and 1 lead in the one, 1 and 2 in the other; alike runs leave no doubt."""
    a = HeadScores(np.repeat([[[0.9, 0.8, 0.1, 0.0]]], 6, 0), "a", np.repeat([0, 1, 2], 2))
    b = HeadScores(np.repeat([[[0.1, 0.8, 0.9, 0.0]]], 6, 0), "b", np.repeat([0, 1, 2], 2))
    assert top_overlap(a, b, 2).tolist() == [1, 1, 1]
    assert top_overlap(a, a, 2).tolist() == [2, 2, 2]


def test_top_overlap_has_an_interval_where_needles_differ():
    """One needle of two knows head 0, the other head 1: which one leads is left to the draw."""
    mixed = HeadScores(np.array([[[1.0, 0.0]], [[0.0, 0.9]]]), "m", np.array([0, 1]))
    sure = HeadScores(np.array([[[1.0, 0.0]], [[0.9, 0.0]]]), "m", np.array([0, 1]))
    assert top_overlap(sure, mixed, 1).tolist() == [1, 0, 1]
