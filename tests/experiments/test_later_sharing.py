"""Sharing in later layers: the plan's rule by hand; scores of tokens against loops."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import spearmanr

from rmutils.attention.sharing_plans import calibration_prompts
from rmutils.book.chapters.share_attention.later_sharing import (
    LaterConfig,
    compare_arms,
    later_sharing,
    primary,
    shown_by,
)
from rmutils.book.chapters.share_attention.layer_choice import (
    AgreementConfig,
    agreement,
    early_and_later,
)
from rmutils.book.experiments.under_variants import TextsConfig
from rmutils.core.experiment import Plan
from rmutils.heads.detection import DetectConfig
from rmutils.models import load_model
from rmutils.models.engine.implementations import using


def needles(alike, random, model="m", rate=0.7):
    """Needles found of 20, one case each; two draws that find the same."""
    return pd.concat([pd.DataFrame({
        "model": model, "rate": rate, "arm": arm, "draw": draw, "question": range(20), "place": 0.5,
        "correct": [float(i < count) for i in range(20)]})
        for arm, draw, count in (("plain", 0, 20), ("alike", 0, alike), ("random", 1, random),
                                 ("random", 2, random))], ignore_index=True)


def test_the_rule_of_the_plan():
    table = pd.concat([needles(18, 2, "m"), needles(17, 3, "m", 0.8), needles(2, 18, "n"),
                       needles(10, 10, "o"), needles(20, 20, "p"), needles(1, 20, "q", 0.9)])
    plan = Plan("p", "d", {"kept": dict.fromkeys("mnopq", [0.7, 0.8, 0.9])})
    found = primary(table, plan)
    assert set(found["rate"]) == {0.7, 0.8}
    assert found["p_holm"].min() == pytest.approx(10 * found["p"].min())  # 5 models, 2 rates
    row = found.set_index(["model", "rate"]).loc[("m", 0.7)]
    assert (row["share"], row["share_base"], row["effect"]) == (0.9, 0.1, pytest.approx(0.8))
    assert row["low"] > 0.5 and row["p_holm"] < 0.01 and row["needles"] == 20
    assert row["draws"] == 2 and row["draws_above"] == 0
    assert shown_by(found).to_dict() == {"m": 1, "n": -1, "o": 0, "p": 0}
    assert not compare_arms(table).set_index("model").loc["p", "readable"]


def test_draws_that_beat_alike_heads_are_counted():
    """The mean of two draws lies below alike heads, and one draw above them."""
    better, worse = needles(10, 14), needles(10, 2)
    table = pd.concat([better.query("draw < 2"), worse.query("draw == 2")])
    row, = compare_arms(table).itertuples()
    assert row.effect > 0 and (row.draws_above, row.draws) == (1, 2)


def test_arms_share_where_they_should():
    lm = load_model("tiny-llama")
    found = later_sharing(lm, LaterConfig(
        kept=0.8, layers=(2, 3), draws=(1, 2), prompts=1, tokens=200,
        needles=DetectConfig(lengths=(160,), depths=(0.5,), needles=2, max_new_tokens=8),
        texts=TextsConfig(count=1)))
    arms = found["arms"].set_index("arm")
    assert (arms["retention"] <= 0.8).all() and (arms["retention"] > 0.7).all()
    assert arms.loc["one threshold", "threshold"] < arms.loc["alike", "threshold"]
    kept = found["needles"].groupby(["arm", "draw"])["kept"].first()
    assert kept["plain", 0] == 1
    assert kept["random", 1] == kept["random", 2] == kept["alike", 0] == arms.loc[
        "alike", "retention"]
    assert set(found["texts"]["arm"]) == {"plain", "alike", "random", "one threshold"}


def test_scores_choices_and_overlaps_by_loops():
    lm = load_model("tiny-llama")
    found = agreement(lm, AgreementConfig(prompts=1, tokens=200, layer=2, p=0.9))
    prompt, = calibration_prompts(lm, 1, 200)
    n, block = len(prompt), lm.model.base_model.layers[1]
    with using(lm.model, "eager"), torch.inference_mode():
        out = lm.model(torch.tensor([prompt]), output_attentions=True, output_hidden_states=True)
        values = block.self_attn.v_proj(block.input_layernorm(out.hidden_states[1]))[0]
    values = values.view(n, 8, 32)
    scores = np.array([np.mean([
        float(out.attentions[1][0, h, k:, k].mean() * values[k, h // 2].norm())
        for h in range(16)]) for k in range(n)])
    table = found["tokens"].query("layer == 1")["score"].to_numpy()
    np.testing.assert_allclose(table, scores / scores.max(), rtol=1e-3)
    one = found["tokens"].pivot(index="layer", columns="token", values="score").to_numpy()[:, 1:]
    row = found["layers"].query("layer == 3 and other == 1").iloc[0]
    assert row["correlation"] == pytest.approx(spearmanr(one[3], one[1]).statistic, abs=1e-3)
    steps = {q: set(part["key"]) for q, part in found["steps"].groupby("query")}
    weights = out.attentions[2][0].mean(0)[n - 1]
    left_out = sorted({*range(n)} - steps[n - 1], key=lambda k: -weights[k])
    assert weights[sorted(steps[n - 1])].sum() >= 0.9 * weights.sum()
    assert weights[left_out[0]] <= min(weights[k] for k in steps[n - 1] - {n - 1})
    shares = [len(steps[q] & steps[q - 4]) / len(steps[q - 4]) for q in range(n // 2, n)]
    assert found["overlap"].set_index("steps").loc[4, "common"] == pytest.approx(np.mean(shares))


def test_early_and_later_pairs_are_those_within_each_part():
    table = pd.DataFrame([(q, i, j, 0.9 if j >= 2 else 0.5 if i < 2 else 0.1) for q in range(3)
                          for i in range(4) for j in range(i)],
                         columns=["question", "layer", "other", "correlation"])
    found = early_and_later(table, 2)
    assert found["early"].value == pytest.approx(0.5)
    assert found["later"].value == pytest.approx(0.9)
    assert found["difference"].value == pytest.approx(0.4)
