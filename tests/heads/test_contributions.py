"""Scores by what heads write, against eager attention and loops."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rmutils import DetectConfig, load_model, register_attention
from rmutils.core.errors import UserError
from rmutils.heads.contributions import answer_steps
from rmutils.heads.detection import build_cases, detect
from rmutils.heads.score_kinds import SCORES

KINDS = "attention", "dla", "locos"
GRID = DetectConfig(lengths=(192, 220), depths=(0.0, 1.0), needles=1, max_new_tokens=20)


@torch.no_grad()
def slow_scores(lm, case, tokens):
    """Every key by itself: its weight, and what its value adds to the logit of the token."""
    model, values = lm.model, []
    hooks = [layer.self_attn.v_proj.register_forward_hook(lambda *args: values.append(args[2][0]))
             for layer in model.model.layers]
    model.set_attn_implementation("eager")
    rows = model(torch.tensor([[*case.input_ids, *tokens[:-1]]]), output_attentions=True).attentions
    model.set_attn_implementation("sdpa")
    for hook in hooks:
        hook.remove()
    layers, heads = lm.shape
    size, (start, end) = model.config.head_dim, case.needle_span
    wanted = [*case.input_ids[start:end]]
    (first,) = [i for i in range(len(tokens)) if [*tokens[i : i + len(wanted)]] == wanted]
    found = {kind: np.zeros((layers, heads)) for kind in KINDS}
    for step in range(first, first + len(wanted)):
        row = len(case.input_ids) - 1 + step
        for i in range(layers):
            for h in range(heads):
                share = heads // model.config.num_key_value_heads
                value = values[i][: row + 1, h // share * size :][:, :size]
                weight = rows[i][0, h, row, : row + 1]
                output = model.model.layers[i].self_attn.o_proj.weight[:, h * size : (h + 1) * size]
                phi = weight * (value @ output.T @ model.lm_head.weight[tokens[step]])
                others = [j for j in range(row + 1) if not start <= j < end]
                less = len(wanted) / len(others)
                for kind, part in (("attention", weight), ("locos", phi)):
                    found[kind][i, h] += float(part[start:end].sum() - less * part[others].sum())
                found["dla"][i, h] += float(phi.sum())
    return {kind: total / len(wanted) for kind, total in found.items()}


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen3", "tiny-olmo3"])
def test_scores_are_those_of_loops_over_keys(name):
    lm = load_model(name, device="cpu")
    for definition in KINDS:
        kind = SCORES[definition](lm, GRID.changed({"definition": definition}))
        answers = [*kind.answers(build_cases(lm, GRID), None)]
        for case, answer, _ in answers[:2]:
            want = slow_scores(lm, case, answer.tokens.tolist())[definition]
            assert np.abs(want).max() > 0.1
            np.testing.assert_allclose(kind.score(case, answer), want, rtol=1e-5, atol=1e-5)
    scores = detect(lm, GRID.changed({"definition": "locos"}))
    assert scores.runs.min() < 0 < scores.runs.max() and len(scores.runs) == 4
    low, high = np.moveaxis(scores.interval(), -1, 0)
    assert np.isnan(low).all() or (low <= scores.mean).all()


def test_steps_that_write_the_answer():
    """By tokens, else by text, else all of them."""
    words = dict(enumerate(["eat", " a", " plum", " today", "ea", "t", "We"]))
    case = SimpleNamespace(input_ids=[3, 0, 1, 2, 3], needle_span=(1, 4),
                           needle=SimpleNamespace(real_needle="eat a plum"))
    steps = [answer_steps(case, said, lambda ids: "".join(map(words.get, ids)))
             for said in ([6, 0, 1, 2], [6, 4, 5, 1, 2, 3], [6, 3], [])]
    assert steps == [[1, 2, 3], [1, 2, 3, 4], [0, 1], []]


def test_what_cannot_have_such_a_score_is_told_before_anything_runs(llama):
    config = GRID.changed({"definition": "locos"})
    kind = SCORES["locos"](llama, config)
    with pytest.raises(UserError, match="cannot be measured under a variant"):
        kind.answers([], lambda ids: None)

    @register_attention("other")
    def other(*tensors, **how):
        raise AssertionError("it runs")

    llama.model.set_attn_implementation("other")
    with pytest.raises(UserError, match="the attention of random-llama is not the plain one"):
        detect(llama, config)
    llama.model.set_attn_implementation("sdpa")
    del llama.model.base_model.layers[2].self_attn.o_proj
    with pytest.raises(UserError, match="lacks an attention with an output projection"):
        detect(llama, config)


def test_nothing_said_is_nothing_written(llama):
    """An answer that stops at once scores 0, beside others and alone."""
    kind = SCORES["dla"](llama, GRID)
    kind.stop_ids = lambda: {*range(len(llama.tokenizer))}
    for case, answer, _ in kind.answers(build_cases(llama, GRID), None):
        assert not len(answer.tokens) and (kind.score(case, answer) == 0).all()
