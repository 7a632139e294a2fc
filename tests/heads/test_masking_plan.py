"""A sweep masks the highest heads, and others that no threshold calls retrieval heads."""

import numpy as np
import pytest

from rmutils.book.chapters.masking_sweep.experiment import masking_plan
from rmutils.core.errors import UserError
from rmutils.heads import HeadScores

MEANS = np.zeros(32)
MEANS[[5, 30, 12, 7, 20]] = [0.9, 0.4, 0.1, 0.06, 0.02]
"""Heads 1-1, 7-2, 3-0, 1-3 and 5-0 of 8 layers x 4 heads: 3 reach 0.1, 4 reach 0.05."""
TOP = [(1, 1), (7, 2), (3, 0), (1, 3), (5, 0)]


@pytest.fixture
def scores() -> HeadScores:
    return HeadScores(MEANS.reshape(1, 8, 4), "some-model")


def plan_of(scores, counts, draws=40):
    return masking_plan(scores, counts, taus=(0.05, 0.1), draws=draws, seed=1)


def test_whole_model_then_every_count_once(scores):
    plan = plan_of(scores, (5, 2, 3))
    assert plan[0].policy == "whole" and plan[0].heads == ()
    highest = [m for m in plan if m.policy == "retrieval"]
    assert [list(m.heads) for m in highest] == [TOP[:n] for n in (2, 3, 4, 5)]
    keys = [tuple(m.key.values()) for m in plan]
    assert len(set(keys)) == len(keys) == 1 + 4 + 4 * 40
    assert all(m.key["count"] == len(m.heads) for m in plan)


def test_others_are_never_retrieval_heads(scores):
    """Not even at count 1, where the other three heads at or above 0.05 are not masked."""
    plan = plan_of(scores, (1, 5))
    for count, spared in {1: TOP[:4], 5: TOP}.items():
        draws = [m.heads for m in plan if m.key["policy"] == "non-retrieval"
                 and m.key["count"] == count]
        assert len(draws) == 40 and all(len(set(heads)) == count for heads in draws)
        drawn = {head for heads in draws for head in heads}
        assert drawn.isdisjoint(spared) and len(drawn) > 20 and len(set(draws)) > 10
    assert plan_of(scores, (1, 5)) == plan


def test_no_others_where_there_is_no_choice(scores):
    """Of 32 heads, 16 highest leave 16 others, of which 16 can be drawn in one way only."""
    policies = {count: {m.policy for m in plan_of(scores, (count,)) if len(m.heads) == count}
                for count in (15, 16, 32)}
    assert policies == {15: {"retrieval", "non-retrieval"}, 16: {"retrieval"}, 32: {"retrieval"}}


def test_too_many(scores):
    with pytest.raises(UserError, match="33 heads are to be masked, but some-model has 32"):
        plan_of(scores, (2, 33))
