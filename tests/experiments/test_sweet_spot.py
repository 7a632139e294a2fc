"""The rules that read a number of heads, and a tau, off a sweep."""

import numpy as np
import pandas as pd
import pytest

from rmutils.book.chapters.masking_sweep import sweet_spot as spot
from rmutils.heads import HeadScores

COUNTS = [0, 2, 4, 8, 16, 32]


def curve(counts=COUNTS, policy="retrieval", **columns) -> pd.DataFrame:
    return pd.DataFrame({"policy": policy, "count": counts, **columns})


@pytest.fixture
def falling() -> pd.DataFrame:
    """Noticeably worse at 2, not at 4, from 8 on always; below 0.1 at 2 and from 16 on."""
    return curve(value=[0.9, 0.05, 0.8, 0.4, 0.05, 0.0], change_low=[0, -0.9, -0.3, -0.8, -0.9, -1],
                 change_high=[0, -0.8, 0.1, -0.2, -0.7, -0.9])


@pytest.fixture
def rising() -> pd.DataFrame:
    """Noticeably more from 16 on."""
    return curve(value=[0, 0, 0, 0, 1, 2], change_low=[0, 0, 0, 0, 0.1, 0.2],
                 change_high=[0, 0, 1, 1, 1, 1])


@pytest.fixture
def scores() -> HeadScores:
    """32 heads with scores of 0.31, 0.30, ... 0.00."""
    means = np.random.default_rng(0).permutation(np.arange(32) / 100)
    return HeadScores(means.reshape(1, 4, 8), "some-model")


def test_where_it_gets_worse_and_collapses(falling, rising):
    assert spot.worse_from(falling) == 8 and spot.collapsed_from(falling) == 16
    assert spot.worse_from(falling, sign=1) is None
    assert spot.worse_from(rising, sign=1) == 16 and spot.worse_from(rising) is None
    assert spot.worse_from(falling, "non-retrieval") is None
    shuffled = falling.sample(frac=1, random_state=0)
    assert spot.worse_from(shuffled) == 8 and spot.collapsed_from(shuffled) == 16
    assert spot.collapsed_from(falling.assign(value=0.1)) is None


def test_a_whole_model_below_the_mark_has_not_collapsed_at_0(falling):
    assert spot.collapsed_from(falling.assign(value=0.0)) == 2


def test_sweet_spots(falling, rising):
    late = falling.assign(change_high=[0, 0, 0, 0, 0, -0.1], value=1.0)
    never = falling.assign(change_high=0.0)
    windows = spot.windows({"haystack": falling, "tasks": late, "by heart": never}, rising)
    assert windows == {"haystack": ([8], True), "tasks": ([32], False), "by heart": ([], True),
                       "contrast and repetition": ([8], True)}
    endless = spot.windows({"haystack": falling}, rising.assign(change_low=0.0))
    assert endless["contrast and repetition"] == ([8, 16, 32], False)
    too_late = spot.windows({"haystack": late}, rising)
    assert too_late["contrast and repetition"] == ([], True)  # repetition begins before contrast


def test_tau_selects_that_many(scores):
    for count in (1, 5, 31, 32):
        above, up_to = spot.tau_for(scores, count)
        assert len(scores.select(tau=up_to)) == count
        if count < 32:
            assert len(scores.select(tau=above)) == count + 1
            assert len(scores.select(tau=(above + up_to) / 2)) == count
