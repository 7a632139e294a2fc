"""Curves of a sweep, and the rules that read a number of heads and a tau off them, by hand."""

import numpy as np
import pandas as pd
import pytest

from rmutils.book.chapters.masking_sweep import sweet_spot as curves
from rmutils.book.chapters.masking_sweep import sweet_spot as spot
from rmutils.book.chapters.masking_sweep.experiment import Sweep
from rmutils.heads import HeadScores

KEYS = ["policy", "draw", "count", "task", "sample", "cluster", "correct"]


def rows(policy: str, count: int, *draws: list[float], task="haystack", clusters=None):
    """Rows of one masking, a list of values for each draw."""
    return [(policy, draw, count, task, i, (clusters or range(len(values)))[i], value)
            for draw, values in enumerate(draws) for i, value in enumerate(values)]


def curve(*parts) -> pd.DataFrame:
    table = pd.DataFrame([row for part in parts for row in part], columns=KEYS)
    return curves.curve(table, "correct").set_index(["policy", "count"])


def test_values_and_paired_changes():
    """The whole model is right in half of all cases and the masked one in none of them, or where it
    was not: the first is certain, the second has no interval below 0."""
    whole, never = [1.0, 0.0] * 8, [0.0] * 16
    found = curve(rows("whole", 0, whole), rows("retrieval", 2, never),
                  rows("retrieval", 4, [1 - v for v in whole]), rows("retrieval", 9, whole))
    assert found.loc[("retrieval", 0), ["value", "change", "change_low", "change_high"]].tolist() \
        == [0.5, 0, 0, 0]
    assert found.loc[("retrieval", 2), ["value", "low", "high", "change"]].tolist() == \
        [0, 0, 3 / 16, -0.5]  # never in 16 cases: the rule of three
    low, high = found.loc[("retrieval", 2), ["change_low", "change_high"]]
    whole_low, whole_high = found.loc[("retrieval", 0), ["low", "high"]]
    assert (low, high) == pytest.approx((-whole_high, -whole_low))
    assert -0.8 < low < -0.6 and -0.4 < high < -0.2  # 16 cases: half a width of 0.25
    assert found.loc[("retrieval", 4), "change_low"] < -0.2
    assert found.loc[("retrieval", 4), "change_high"] > 0.2
    assert found.loc[("retrieval", 9), ["change_low", "change_high"]].tolist() == \
        [-3 / 16, 3 / 16]


def test_clusters_are_drawn_whole():
    """All 40 cases belong to two needles, one found and one not: any mean from 0 to 1 can come."""
    values, clusters = [1.0] * 20 + [0.0] * 20, [7] * 20 + [3] * 20
    found = curve(rows("whole", 0, values, clusters=clusters),
                  rows("retrieval", 1, values, clusters=clusters))
    assert found.loc[("retrieval", 1), ["value", "low", "high"]].tolist() == [0.5, 0, 1]


def test_draws_of_heads_are_drawn_too():
    """Every case is lost by one choice of heads and by none of three others."""
    found = curve(rows("whole", 0, [1.0] * 30),
                  rows("non-retrieval", 5, [0.0] * 30, *[[1.0] * 30] * 3))
    value, low, high = found.loc[("non-retrieval", 5), ["value", "low", "high"]]
    assert (value, low, high) == (0.75, 0, 1)  # four choices say little: spread to the bounds


def test_samples_are_paired_whatever_the_order_of_tasks():
    """Sample 0 of one task is not that of another; where nothing changes, every change is 0, and
    three questions say nothing about others."""
    found = curve(*[part for policy, count in (("whole", 0), ("retrieval", 3)) for part in (
        rows(policy, count, [0.0], task="needle"), rows(policy, count, [1.0, 1.0]))])
    assert found.loc[("retrieval", 3), ["value", "change", "change_low", "change_high"]].tolist() \
        == pytest.approx([2 / 3, 0, -1, 1])


@pytest.fixture
def result() -> Sweep:
    answers = pd.DataFrame([
        row for task in ("haystack", "needle", "key_value", "next words") for row in (
            *rows("whole", 0, [1.0, 1.0, 1.0], task=task),
            *rows("retrieval", 2, [0.0, 0.0, 0.0], task=task),
            *rows("non-retrieval", 2, [1.0, 1.0, 0.0], [1.0, 1.0, 1.0], task=task),
            *rows("retrieval", 16, [0.0, 0.0, 0.0], task=task))], columns=KEYS)
    speech = answers[answers["task"] == "haystack"].assign(task="speech")
    masked = speech["policy"] == "retrieval"
    return Sweep(pd.DataFrame(), answers, speech.assign(
        repetition=0.1 * masked, surprise=np.log(2) * (1 + masked)))


def test_measures(result):
    """Only what was asked; twice the nats are the square of the perplexity."""
    shares, speech = curves.share_curves(result), curves.speech_curves(result)
    assert list(shares) == ["haystack", "tasks", "next words"]
    assert list(speech) == ["repetition", "perplexity"]
    masked = speech["perplexity"].query("policy == 'retrieval' and count == 2").iloc[0]
    assert masked[["value", "low", "high"]].tolist() == pytest.approx([4, 4, 4])
    assert masked[["change", "change_low"]].tolist() == pytest.approx([1, 1])  # 100 % more
    assert speech["repetition"].query("policy == 'retrieval'")["value"].tolist() == \
        pytest.approx([0, 0.1, 0.1])


def test_by_task(result):
    table = curves.by_task(result, 2)
    assert table["samples"].eq(3).all() and len(table) == 4 * 3
    shown = table.pivot(index="task", columns="policy", values="value")
    assert shown["whole"].eq(1).all() and shown["retrieval"].eq(0).all()
    assert shown["non-retrieval"].tolist() == pytest.approx([5 / 6] * 4)
    assert {*curves.by_task(result, 16)["policy"]} == {"whole", "retrieval"}


COUNTS = [0, 2, 4, 8, 16, 32]


def points(counts=COUNTS, policy="retrieval", **columns) -> pd.DataFrame:
    return pd.DataFrame({"policy": policy, "count": counts, **columns})


@pytest.fixture
def falling() -> pd.DataFrame:
    """Noticeably worse at 2, not at 4, from 8 on always; below 0.1 at 2 and from 16 on."""
    return points(value=[0.9, 0.05, 0.8, 0.4, 0.05, 0.0],
                  change_low=[0, -0.9, -0.3, -0.8, -0.9, -1],
                  change_high=[0, -0.8, 0.1, -0.2, -0.7, -0.9])


@pytest.fixture
def rising() -> pd.DataFrame:
    """Noticeably more from 16 on."""
    return points(value=[0, 0, 0, 0, 1, 2], change_low=[0, 0, 0, 0, 0.1, 0.2],
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
