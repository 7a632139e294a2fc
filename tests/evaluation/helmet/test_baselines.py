"""Answers that do not depend on their question: by loops, and for the shipped evaluations."""

import numpy as np
import pytest

from rmutils.book.chapters.main_tables.task_effects import EVALUATIONS
from rmutils.evaluation.helmet import evaluate_stored
from rmutils.evaluation.helmet.evaluation import baselines, baselines_stored


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


def test_shipped_scores_are_those_of_the_shipped_evaluation():
    """The questions that were drawn again are those that were asked."""
    table, _ = baselines_stored("smollm2-135m", EVALUATIONS["book"], compute="never")
    assert table["questions"].eq(50).all()
    rerank = table.query("dataset == 'rerank'")
    assert rerank["commonest"].eq("[2] > [1]").all() and rerank["times"].eq(50).all()
    np.testing.assert_allclose(rerank["score"], rerank["shuffled"], atol=1)
    scores, _ = evaluate_stored("smollm2-135m", EVALUATIONS["book"], compute="never")
    stored = scores.groupby(["dataset", "length", "sample"])["score"].mean().groupby(
        ["dataset", "length"]).mean()
    again = table.set_index(["dataset", "length"])["score"]
    np.testing.assert_allclose(again, stored[again.index])
