"""Scores of tokens against loops over heads, queries and values."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import spearmanr

from rmutils.attention.sharing_plans import calibration_prompts
from rmutils.book.chapters.share_attention.layer_choice import (
    AgreementConfig,
    agreement,
    early_and_later,
)
from rmutils.models import load_model
from rmutils.models.engine.implementations import using


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
