"""Designed models: the steps of one, and what is read from many."""

import shutil

import numpy as np
import pandas as pd
import pytest
from scipy.stats import pearsonr

from rmutils.book.chapters.score_distribution import designs as module
from rmutils.book.chapters.score_distribution.designs import (
    Design,
    DesignConfig,
    correlations,
    design_stored,
    points,
)
from rmutils.core.errors import NotStored
from rmutils.core.paths import SHIPPED_MODELS
from rmutils.evaluation.helmet import EvaluateConfig, evaluate
from rmutils.heads import DetectConfig, HeadScores
from rmutils.heads.detection import detect_stored
from rmutils.models import load_model
from rmutils.models.teaching import TeachingRecipe
from rmutils.pipeline.retmask import RetMaskConfig
from rmutils.stats import correlation
from rmutils.training import RECIPES

SMALL = DesignConfig(
    recipe=TeachingRecipe(family="olmo3", steps=2),
    retmask=RetMaskConfig(
        instructions=3, tau=0.1, recipe=RECIPES["smoke"],
        detect=DetectConfig(lengths=(200,), depths=(0.5,), needles=4),
    ).changed({"responses.max_new_tokens": 4}),
    seeds=(0,), evaluation=EvaluateConfig(datasets=("choice",), lengths=(300,), samples=2))
RNG = np.random.default_rng(0)


def test_a_design_is_its_steps(cache, monkeypatch):
    """With a model at hand in the place of the trained one."""
    asked = []

    def train(recipe, folder):
        asked.append(recipe)
        return shutil.copytree(SHIPPED_MODELS / "tiny-olmo3", folder)

    monkeypatch.setattr(module, "train", train)
    with pytest.raises(NotStored, match="-p compute_designs auto"):
        design_stored(SMALL, compute="never")
    found = design_stored(SMALL)
    folder, = (cache / "models").glob("design-*")
    lm = load_model(str(folder))
    before = found.samples.query("strategy == 'before'")
    direct = evaluate(lm, SMALL.evaluation)
    pd.testing.assert_series_equal(before["score"].reset_index(drop=True), direct["score"])
    assert asked == [SMALL.recipe] and "response" not in found.samples
    assert found.samples.groupby("strategy")["seed"].unique().map(list).to_dict() == {
        "before": [0], "retmask": [0]}
    scores, _ = detect_stored(str(folder), SMALL.retmask.detect)
    np.testing.assert_array_equal(found.scores.runs, scores.runs)
    assert design_stored(SMALL).artifact == found.artifact and len(asked) == 1


def design(level: float, gain: float) -> Design:
    """One head of four scores 0.8, the others so high; RetMask adds a gain to all samples."""
    runs = np.full((4, 1, 4), level)
    runs[:, 0, 0] = 0.8
    cases = pd.DataFrame({"needle": [0, 1, 2, 3, 4], "success": [True] * 4 + [False]})
    rows = [{"category": category, "dataset": category, "length": 9, "sample": i, "cluster": i,
             "metric": "m", "score": 50 + noise + gain * (strategy == "retmask"),
             "strategy": strategy, "seed": 0}
            for category in ("Cite", "ICL") for i in range(6) for noise in [RNG.random()]
            for strategy in ("before", "retmask")]
    return Design(HeadScores(runs, "d", np.arange(4), cases), pd.DataFrame(rows), None)


def test_points_and_their_correlation_by_hand():
    levels, gains = [0.0, 0.2, 0.4, 0.8, 0.1], [5.0, 1.0, 2.0, -1.0, 3.0]
    table = points({f"m{i}": design(*pair)
                    for i, pair in enumerate(zip(levels, gains, strict=True))})
    # Gini of x, x, x, 0.8 from its definition: mean absolute difference over twice the mean.
    ginis = [np.abs(np.subtract.outer(x, x)).mean() / (2 * np.mean(x))
             for x in ([level] * 3 + [0.8] for level in levels)]
    np.testing.assert_allclose(table["sparsity"], ginis, atol=1e-12)
    np.testing.assert_allclose(table["gain"], gains)
    assert (table["found"] == 0.8).all() and (table["heads"] == 4).all()
    found = correlations(table).set_index("statistic")
    r = np.corrcoef(ginis, gains)[0, 1]
    low, high = np.tanh(np.arctanh(r) + np.array([-1, 1]) * 1.959964 / np.sqrt(5 - 3))
    row = found.loc["Pearson's r"]
    np.testing.assert_allclose(row[["value", "low", "high"]].astype(float), [r, low, high])
    # ranks of the Gini: 5 3 2 1 4; of the gain: 5 2 3 1 4; rho = 1 - 6 * (1 + 1) / (5 * 24)
    ranks = found.loc["Spearman's rank correlation"]
    assert ranks["value"] == pytest.approx(0.9) and ranks["low"] < 0.9 <= ranks["high"]


def test_correlation_against_fisher_and_with_errors():
    """Without errors it is Fisher's interval; with errors it is wider, and still covers."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=12)
    y = x + rng.normal(size=12)
    theirs = pearsonr(x, y)
    plain = correlation(x, y, np.zeros(12))
    assert tuple(plain) == pytest.approx((theirs.statistic, *theirs.confidence_interval()))
    noisy = correlation(x, y, np.full(12, 0.7))
    assert noisy.value == plain.value and noisy.low < plain.low and noisy.high > plain.high
    assert np.isnan(correlation(x[:3], y[:3], np.zeros(3)).low)
    held = []
    for _ in range(200):
        x, e = rng.normal(size=12), rng.normal(size=12)
        found = correlation(x, e, np.full(12, 0.5), resamples=200)
        held.append(found.low < 0 < found.high)
    assert np.mean(held) > 0.93
