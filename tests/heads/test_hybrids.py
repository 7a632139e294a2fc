"""Hybrids: layers of another kind than attention have no heads. What is watched, masked and
written is what transformers computes when it reads the text at once."""

import numpy as np
import pytest
import torch

from rmutils import (
    DetectConfig,
    HeadScores,
    choose,
    detect,
    export_masked,
    generate,
    mask_heads,
    watch,
)
from rmutils.attention.ms_poe import MsPoe
from rmutils.core.errors import UserError
from rmutils.heads import detection
from rmutils.heads.detection import build_cases
from rmutils.heads.score_kinds import SCORES
from rmutils.models.families import family_of
from rmutils.models.head_blocks import projections
from rmutils.models.known_models import check
from tests.architectures import HYBRIDS, make

GRID = DetectConfig(lengths=(150, 160), depths=(0.5,), needles=1, max_new_tokens=4)
WITH_HEADS = {"Qwen3Next": [3], "FalconH1": [0, 1, 2, 3]}


@pytest.fixture(params=HYBRIDS)
def hybrid(request, tokenizer):
    lm = make(request.param, tokenizer)
    assert lm.layers == WITH_HEADS.get(request.param, [1, 3])
    return lm


@torch.no_grad()
def eager(lm, ids):
    """Attention weights by layer, (heads, rows, keys), of one reading; the values are watched."""
    model, weights = lm.model, {}
    hooks = [model.model.layers[i].self_attn.register_forward_hook(
        lambda module, given, output, i=i: weights.update({i: output[1][0]})) for i in lm.layers]
    model.set_attn_implementation("eager")
    model(torch.tensor([ids]), use_cache=False)
    model.set_attn_implementation("sdpa")
    for hook in hooks:
        hook.remove()
    return weights


def test_heads_are_watched_in_the_layers_that_have_some(hybrid):
    check(hybrid)
    kinds = {name: SCORES[name](hybrid, GRID.changed({"score": name}))
             for name in ("copy", "attention", "anchor", "query")}
    cases = build_cases(hybrid, GRID)
    plain = {case.id: answer for case, answer, _ in kinds["copy"].answers(cases, None)}
    for case, answer, _ in [*kinds["attention"].answers(cases, None)]:
        assert answer.tokens.tolist() == plain[case.id].tokens.tolist() == greedy(
            hybrid, case.input_ids, len(answer.tokens))
        np.testing.assert_array_equal(answer.positions, plain[case.id].positions)
        weights, first = eager(hybrid, [*case.input_ids, *answer.tokens[:-1]]), len(case.input_ids)
        start, end = case.needle_span
        for layer in range(4):
            if layer not in weights:
                assert (answer.positions[:, layer] == -1).all()
                assert not answer.attention[:, layer].any() and not answer.from_all[:, layer].any()
                continue
            rows = weights[layer][:, first - 1 :]
            assert (answer.positions[:, layer] == rows.argmax(-1).T.numpy()).mean() > 0.95  # ties
            np.testing.assert_allclose(
                answer.attention[:, layer], rows[:, answer.steps, start:end].sum(-1).T, atol=1e-5)
            np.testing.assert_allclose(
                answer.anchor[:, layer],
                weights[layer][:, first - 8 : first, start:end].sum(-1).T, atol=1e-5)
    for _, answer, _ in kinds["query"].answers(cases[:1], None):
        assert answer.calibrated.shape[:2] == hybrid.shape
        assert answer.calibrated[hybrid.layers].any()


@torch.no_grad()
def greedy(lm, prompt, count):
    """The whole text is read again for each token."""
    ids = [*prompt]
    for _ in range(count):
        ids.append(int(lm.model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return ids[len(prompt):]


def test_what_its_heads_add_is_what_lacks_without_them(hybrid):
    """In the last layer, whose heads no later layer reads: its output without a head."""
    model, (case, *_) = hybrid.model, build_cases(hybrid, GRID)
    layer = model.model.layers[hybrid.layers[-1]]
    (_, answer, _), = SCORES["dla"](hybrid, GRID.changed({"score": "dla"})).answers([case], None)
    step = answer.steps[-1]
    ids = torch.tensor([[*case.input_ids, *answer.tokens[:step]]])
    unembedding = model.lm_head.weight[answer.tokens[step]]
    factor = getattr(model.config, "lm_head_multiplier", 1 / getattr(
        model.config, "logits_scaling", 1))

    @torch.no_grad()
    def adds():
        seen, hooks = [], []
        for name in ("mlp", "feed_forward", "block_sparse_moe", "shared_mlp"):
            if part := getattr(layer, name, None):  # it would answer to the change
                hooks.append(part.register_forward_hook(lambda module, given, output: tuple(
                    part * 0 for part in output) if isinstance(output, tuple) else output * 0))
        hooks.append(layer.register_forward_hook(lambda module, given, output: seen.append(
            output[0] if isinstance(output, tuple) else output)))
        model(ids, use_cache=False)
        for hook in hooks:
            hook.remove()
        return float(seen[0][0, -1] @ unembedding) * factor

    whole = adds()
    for head in range(4):
        with mask_heads(hybrid, [(hybrid.layers[-1], head)]):
            assert whole - adds() == pytest.approx(
                answer.from_all[-1, hybrid.layers[-1], head], rel=1e-3, abs=1e-4)


def test_answers_are_those_of_whole_readings(hybrid):
    prompts = [[*range(5, 40)], [*range(50, 61)]]
    assert generate(hybrid, prompts, max_new_tokens=4, stop_ids=()) == [
        greedy(hybrid, prompt, 4) for prompt in prompts]
    how = {"max_new_tokens": 4, "temperature": 1.0, "top_p": 0.9, "stop_ids": ()}
    sampled = [generate(hybrid, order, seeds=seeds, **how)
               for order, seeds in ((prompts, (1, 2)), (prompts[::-1], (2, 1)))]
    assert sampled[0] == sampled[1][::-1]


@pytest.mark.parametrize("name", ["Qwen3Next", "Lfm2"])
def test_layers_without_heads_are_nan_and_never_chosen(name, tokenizer, monkeypatch, tmp_path):
    monkeypatch.setattr(detection, "SUCCESS_ROUGE", -1.0)
    lm = make(name, tokenizer)
    scores = detect(lm, GRID)
    assert scores.layers == lm.layers and np.isnan(np.delete(scores.mean, lm.layers, 0)).all()
    assert np.isfinite(scores.mean[lm.layers]).all() and len(scores.ranking()) == 4 * len(lm.layers)
    with pytest.raises(UserError, match=r"top_k=9|top_k=5"):
        scores.select(top_k=4 * len(lm.layers) + 1)
    assert {layer for layer, _ in scores.select(tau=-1.0)} == {*lm.layers}
    for policy in ("non-retrieval", "random", "layer-matched-non-retrieval"):
        for seed in range(5):
            chosen = choose(scores, policy, top_k=2, seed=seed)
            assert {layer for layer, _ in chosen} <= {*lm.layers}
    above = scores.statistic(lambda maps: (maps >= 0).mean((-2, -1)), bounds=(0, 1))
    assert above.value == 1
    scores.plot()
    back = HeadScores.load(scores.save(tmp_path / "own.json"), lm)
    np.testing.assert_array_equal(back.runs, scores.runs)
    for format in ("wu", "qrhead"):
        with pytest.raises(UserError, match="no place for layers without heads"):
            scores.save(tmp_path / "other", format)


def test_what_a_hybrid_cannot_do_is_refused(hybrid, tmp_path):
    lacks = [i for i in range(4) if i not in hybrid.layers]
    for layer in lacks:
        with pytest.raises(UserError, match=rf"no head {layer}-0: of its 4 layers, .* have"):
            hybrid.checked_heads([(layer, 0)])
    with pytest.raises(UserError, match="hybrid"):
        detect(hybrid, GRID.changed({"score": "patching"}))
    with pytest.raises(UserError, match="hybrid"), MsPoe(s_max=2, first_layer=0).attached(hybrid):
        pass


def test_watched_rows_are_those_of_layers_with_heads(hybrid):
    ids = [*range(5, 40)]
    with watch(hybrid) as seen:
        hybrid.model(torch.tensor([ids]), use_cache=False)
    assert seen.weights[0].shape[1] == seen.outputs[0].shape[1] == len(hybrid.layers)
    for place, weights in enumerate(eager(hybrid, ids).values()):
        torch.testing.assert_close(seen.weights[0][0, place, :, 0], weights[:, -1], rtol=1e-4,
                                   atol=1e-5)


def test_masked_heads_write_nothing_also_in_a_copy(hybrid, tmp_path):
    ids, head = torch.tensor([[*range(5, 40)]]), (hybrid.layers[-1], 2)
    whole = hybrid.model(ids).logits
    with mask_heads(hybrid, [head]):
        masked = hybrid.model(ids).logits
        weight = projections(hybrid.model)[head[0]].weight
        size = weight.shape[1] // 4
        assert not weight[:, 2 * size : 3 * size].any()
    assert not torch.allclose(masked, whole, atol=1e-3)
    torch.testing.assert_close(hybrid.model(ids).logits, whole)
    folder = export_masked(hybrid, [head], tmp_path / "masked")
    copy = type(hybrid.model).from_pretrained(folder).eval()
    torch.testing.assert_close(copy(ids).logits, masked, rtol=1e-4, atol=1e-4)
    if hybrid.family == "qwen3_next":
        with pytest.raises(UserError, match="queries and gates"), \
                mask_heads(hybrid, [head], "query"):
            pass
    assert family_of(hybrid.family).tau == 0.1
