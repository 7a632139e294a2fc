"""Sparsity and gain: designs, the steps of a run, the planned test computed a second time."""

import dataclasses
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import chi2, norm

from rmutils.book.chapters.score_distribution import sparser_versions as module
from rmutils.book.chapters.score_distribution.sparser_versions import (
    ASSUMED_ERROR,
    SparsityAndGain,
    answer,
    make_design,
    planned,
    points,
    smallest_effect,
    sparsity_and_gain,
)
from rmutils.book.experiments.planned_runs import BEFORE, MATCHED, RETMASK, NoSnapshot
from rmutils.core.errors import NotStored, UserError
from rmutils.core.experiment import load_plan
from rmutils.heads import DetectConfig, HeadScores, detection
from rmutils.models import load_model
from rmutils.training import RECIPES

PLAN = load_plan("sparsity_and_gain")
DESIGNS = [run for run in planned(PLAN) if run.arm == BEFORE]
CONFIG = DESIGNS[0].changed({
    "kept": ((1, 1), (1, 12)), "found": (0.0, 1.0),
    "retmask": DESIGNS[0].retmask.changed({
        "instructions": 4, "recipe": RECIPES["smoke"].changed({"max_steps": 2}),
        "responses.max_new_tokens": 4, "tau": 0.0,
        "detect": DetectConfig(lengths=(128,), depths=(0.5,), needles=3, max_new_tokens=8)})})


def test_a_design_is_the_model_with_silent_and_scaled_heads(cache, monkeypatch):
    """Its weights are the model's, but for the queries of ten heads and the outputs of two."""
    factors = []

    def look(lm, config):
        column = lm.model.base_model.layers[1].self_attn.o_proj.weight[0, 32]
        factors.append(round(float(column.detach() / whole["o"][0, 32]), 6))
        return pd.DataFrame({"success": [factors[-1] > 0.55]})

    layer = load_model(CONFIG.base).model.base_model.layers[1].self_attn
    whole = {"o": layer.o_proj.weight.detach(), "q": layer.q_proj.weight.detach()}
    monkeypatch.setattr(module, "find_needles", look)
    with pytest.raises(NoSnapshot, match="2 of 12 heads never found 40% to 60%"):
        make_design(CONFIG.changed({"found": (0.4, 0.6)}))
    assert factors == [1, *sorted((f for f in CONFIG.factors if f < 1), reverse=True)]
    folder, factor = make_design(CONFIG.changed({"found": (0.0, 0.5)}))
    assert factor == 0.5 and make_design(CONFIG.changed({"found": (0.0, 0.5)})) == (folder, 0.5)
    made = load_model(str(folder)).model.base_model.layers[1].self_attn
    size = 32
    for head in range(16):
        rows = slice(head * size, (head + 1) * size)
        silent = (1, head) in set(CONFIG.retrieval) - set(CONFIG.kept)
        scaled = 0.5 if (1, head) in CONFIG.kept else 1.0
        assert torch.equal(made.q_proj.weight[rows], whole["q"][rows] * (not silent))
        assert torch.equal(made.o_proj.weight[:, rows], whole["o"][:, rows] * scaled)


def test_a_run_and_what_is_collected(cache, monkeypatch):
    monkeypatch.setattr(detection, "SUCCESS_ROUGE", -1.0)  # every answer is a success
    monkeypatch.setattr("rmutils.evaluation.answers.SUCCESS_ROUGE", -1.0)
    lost = CONFIG.changed({"found": (-1.0, -0.5), "kept": ((1, 1),), "factors": ()})
    small = dataclasses.replace(module.SPARSITY_AND_GAIN, planned=lambda plan: [
        CONFIG, *(CONFIG.changed({"arm": arm, "retmask.strategy": arm})
                  for arm in (RETMASK, MATCHED)),
        lost, lost.changed({"arm": RETMASK})])
    monkeypatch.setattr(module, "SPARSITY_AND_GAIN", small)
    assert sparsity_and_gain() is None
    with pytest.raises(NotStored, match="-p compute_sparsity auto"):
        small.obtain(CONFIG, compute="never")
    for _ in range(2):  # that it is left out is stored
        with pytest.raises(UserError, match="1 of 12 heads never found"):
            small.obtain(lost)
    small.obtain(CONFIG.changed({"arm": RETMASK}))
    monkeypatch.setattr(module, "SPARSITY_AND_GAIN", small.by_plan(
        dataclasses.replace(PLAN, digest="0" * 16)))
    found = sparsity_and_gain()
    assert found.done == {RETMASK: 1} and found.planned == {RETMASK: 1, MATCHED: 1}
    assert len(found.deviations) == 3 and set(found.cases["arm"]) == {BEFORE, RETMASK}
    assert len(found.cases) == 6 and found.facts["factor"].tolist() == [1]


def fabricated(gains, designs=8, needles=20) -> SparsityAndGain:
    """Designs whose score has moved from one head to two; RetMask finds as many needles more as
    `gains` (of 20) says, plus one with seed 1 and minus one with seed 2."""
    rows, scores = [], {}
    for i in range(designs):
        model = f"design {i}"
        runs = np.zeros((needles, 2, 4))
        runs[:, 1, 0], runs[:, 1, 1] = 0.9, 0.1 * i
        scores[model] = HeadScores(runs, model, np.arange(needles))
        for arm, seed, found in [(BEFORE, 0, 10), *((RETMASK, seed, 10 + gains[i] + more)
                                 for seed, more in enumerate((0, 1, -1))),
                                 *((MATCHED, seed, 10) for seed in range(3))]:
            rows += [{"model": model, "arm": arm, "seed": seed, "needle": n, "length": 9,
                      "depth": 0.5, "success": n < found} for n in range(needles)]
    facts = pd.DataFrame({"model": [*scores], "factor": 1.0, "retrieval_heads": 2})
    total = designs * 3
    return SparsityAndGain(pd.DataFrame(rows), scores, facts, [],
                           Counter({RETMASK: total, MATCHED: total}),
                           Counter({RETMASK: total}), [])


def test_points_and_answer_against_an_independent_computation():
    gains = [6, 5, 5, 3, 2, 1, 1, 0]
    result = fabricated(gains)
    table = points(result)
    np.testing.assert_allclose(table["gain"], [5 * gain for gain in gains])
    for i, row in enumerate(table.itertuples()):
        score = np.array([0.9, 0.1 * i])
        hoyer = (np.sqrt(8) - score.sum() / np.sqrt((score**2).sum())) / (np.sqrt(8) - 1)
        assert row.sparsity == pytest.approx(hoyer)
        # of 20 needles, all but two gain 0 or 100 with every seed; two do with some of the seeds
        each = [100.0] * (gains[i] - 1) + [200 / 3, 100 / 3] + [0.0] * (19 - gains[i]) if (
            gains[i]) else [100 / 3] + [0.0] * 18 + [-100 / 3]
        assert row.error**2 == pytest.approx(np.var(each, ddof=1) / 20 + 25 / 3)
    found = answer(table)
    weights = 1 / table["error"]**2
    mean = (weights * table["gain"]).sum() / weights.sum()
    q = (weights * (table["gain"] - mean) ** 2).sum()
    assert found.spread.q == pytest.approx(q) and found.spread.p == pytest.approx(chi2.sf(q, 7))
    tau = (q - 7) / (weights.sum() - (weights**2).sum() / weights.sum())
    assert found.tau == pytest.approx(np.sqrt(max(tau, 0)))
    rng, x = np.random.default_rng(5), table["sparsity"].to_numpy()
    drawn = [np.arctanh(np.corrcoef(x, rng.normal(table["gain"], table["error"]))[0, 1])
             for _ in range(4000)]
    r = np.corrcoef(x, table["gain"])[0, 1]
    half = norm.ppf(0.975) * np.sqrt(np.var(drawn) + 1 / 5)
    np.testing.assert_allclose(tuple(found.r), [r, *np.tanh(np.arctanh(r) + [-half, half])],
                               atol=0.03)
    np.testing.assert_allclose(points(result, MATCHED)["gain"], table["gain"])
    assert points(result, statistic="gini")["sparsity"].iloc[0] == pytest.approx(7 / 8)


def test_the_smallest_effect_is_that_of_the_plan():
    told = PLAN.content["smallest_effect"]["standard_deviation_of_gains"]
    assert smallest_effect(designs=len(DESIGNS), error=ASSUMED_ERROR) == told
