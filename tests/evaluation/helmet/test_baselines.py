"""Answers that do not depend on their question: by loops, and for the shipped evaluations."""

import numpy as np
import pytest

from rmutils.evaluation.helmet.evaluation import baselines


def test_against_loops():
    rng = np.random.default_rng(0)
    scores, texts = rng.uniform(0, 100, (7, 7)), np.array([0, 0, 1, 1, 1, 2, 3])
    shuffled = [scores[q, a] for q in range(7) for a in range(7) if texts[q] != texts[a]]
    constant = [np.mean([scores[q, a] for q in range(7) if q != a]) for a in range(7)]
    assert baselines(scores, texts) == pytest.approx((np.mean(shuffled), max(constant)))


def test_known_answers():
    """A constant answer is as good as itself; one that fits its own question alone is worth
    nothing elsewhere."""
    constant = np.tile([[30.0], [0.0], [60.0]], 3)
    assert baselines(constant, np.arange(3)) == (30, pytest.approx(45))
    assert baselines(100 * np.eye(4), np.arange(4)) == (0, 0)
    assert np.isnan(baselines(np.ones((2, 2)), np.zeros(2))[0])
