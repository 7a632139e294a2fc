"""Watched rows and outputs, against transformers' own eager attention and values by hand."""

import re

import pytest
import torch
from transformers import StaticCache

from rmutils import DetectConfig, UserError, detect, generate, register_attention, register_score
from rmutils import watch as watched
from rmutils.heads.detection import run_cases
from rmutils.heads.score_kinds import SCORES, ScoreKind
from tests.conftest import FAMILIES, make_lm

PROMPTS = [[7 + 3 * i for i in range(40)], [11 + 5 * i for i in range(33)]]  # windows are of 24


@pytest.fixture(params=[*FAMILIES, "gemma2"])
def lm(request, tokenizer):
    return make_lm(request.param, tokenizer)


def batch():
    """Two prompts, padded on the left."""
    longest = max(map(len, PROMPTS))
    return {"input_ids": torch.tensor([[0] * (longest - len(p)) + p for p in PROMPTS]),
            "attention_mask": torch.tensor([[0] * (longest - len(p)) + [1] * len(p)
                                            for p in PROMPTS])}


def by_hand(lm, **how):
    """Weights and head outputs of each pass of `generate`, by layer, all rows: transformers' eager
    attention, and the values that the layers compute, summed head by head."""
    own, values, passes = lm.model.config._attn_implementation, {}, []
    lm.model.set_attn_implementation("eager")
    hooks = [layer.self_attn.v_proj.register_forward_hook(
        lambda _, __, out, i=i: values.setdefault(i, []).append(out))
        for i, layer in enumerate(lm.model.model.layers)]
    try:
        out = lm.model.generate(**batch(), output_attentions=True, return_dict_in_generate=True,
                                do_sample=False, pad_token_id=0, **how)
    finally:
        for hook in hooks:
            hook.remove()
        lm.model.set_attn_implementation(own)
    for step, weights in enumerate(out.attentions):
        outputs = []
        for i, layer in enumerate(weights):
            known = torch.cat(values[i][: step + 1], 1)[:, -layer.shape[-1]:].unflatten(-1, (2, 8))
            outputs.append(torch.stack(
                [layer[:, h] @ known[:, :, h // 2] for h in range(4)], 1))
        passes.append((weights, outputs))
    return passes


@torch.no_grad()
@pytest.mark.parametrize("own", ["sdpa", "eager"])
def test_a_prompt_and_steps_with_a_cache(lm, own):
    if lm.family == "gemma2" and own == "sdpa":
        pytest.skip("SDPA cannot cap scores")
    lm.model.set_attn_implementation(own)
    steps = {"min_new_tokens": 4, "max_new_tokens": 4}
    expected = by_hand(lm, **steps)
    with watched(lm) as seen:
        lm.model.generate(**batch(), do_sample=False, pad_token_id=0, **steps)
    assert lm.model.config._attn_implementation == own
    assert len(seen.weights) == len(seen.outputs) == len(expected) == 4
    for weights, outputs, (all_weights, all_outputs) in zip(
            seen.weights, seen.outputs, expected, strict=True):
        assert weights.shape[:4] == (2, 4, 4, 1) and outputs.shape == (2, 4, 4, 1, 8)
        for i, (own_weights, own_outputs) in enumerate(zip(all_weights, all_outputs, strict=True)):
            keys = own_weights.shape[-1]
            torch.testing.assert_close(weights[:, i, :, 0, -keys:], own_weights[:, :, -1],
                                       atol=2e-5, rtol=1e-4)
            assert not weights[:, i, :, 0, :-keys].any()
            torch.testing.assert_close(outputs[:, i, :, 0], own_outputs[:, :, -1],
                                       atol=2e-4, rtol=1e-3)


@torch.no_grad()
def test_some_layers_and_rows(lm):
    (weights, outputs), *_ = by_hand(lm, max_new_tokens=1)
    with watched(lm, layers=(3, 1), rows=(39, -3)) as some, watched(lm, "outputs", 2, None) as all_:
        lm.model(**batch())
    assert some.layers == (1, 3) and all_.layers == (2,)
    (rows,), (heads,) = some.weights, some.outputs
    for place, layer in enumerate(some.layers):
        torch.testing.assert_close(rows[:, place], weights[layer][:, :, [39, 37]],
                                   atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(heads[:, place], outputs[layer][:, :, [39, 37]],
                                   atol=2e-4, rtol=1e-3)
    assert not all_.weights
    real = slice(len(PROMPTS[0]) - len(PROMPTS[1]), None)  # rows of padding have no meaning
    torch.testing.assert_close(all_.outputs[0][1, 0, :, real], outputs[2][1, :, real],
                               atol=2e-4, rtol=1e-3)


@torch.no_grad()
def test_what_the_model_does_stays_as_it_is(lm):
    ids, own = torch.tensor([PROMPTS[0]]), lm.model.config._attn_implementation
    before, modules = lm.model(ids).logits, [vars(m).keys() for m in lm.model.modules()]
    said = generate(lm, PROMPTS, max_new_tokens=3)
    with watched(lm) as seen:
        torch.testing.assert_close(lm.model(ids).logits, before)
        assert generate(lm, PROMPTS, max_new_tokens=3) == said
    with pytest.raises(ZeroDivisionError), watched(lm):
        1 / 0  # noqa: B018
    passes = len(seen.weights)
    assert torch.equal(lm.model(ids).logits, before) and passes == len(seen.weights) > 2
    assert lm.model.config._attn_implementation == own
    assert modules == [vars(m).keys() for m in lm.model.modules()]
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in lm.model.modules())


def test_a_detection_within(llama):
    config = DetectConfig(lengths=(300,), depths=(0.5,), needles=2, max_new_tokens=3)
    alone = detect(llama, config)
    with watched(llama, rows=None) as seen:
        assert detect(llama, config).cases["response"].equals(alone.cases["response"])
    assert seen.weights[-1].sum(-1).max() < 1.001


@torch.no_grad()
def test_other_attentions(llama):
    """One that returns its weights is watched; of one that does not, outputs can be had."""
    def twice(module, query, key, value, mask, *, scaling, **kwargs):
        key, value = (t.repeat_interleave(2, 1) for t in (key, value))
        weights = (2 * scaling * query @ key.transpose(2, 3) + mask).softmax(-1)
        kept["weights"] = weights
        return (weights @ value).transpose(1, 2), weights if kept["told"] else None

    kept, ids = {"told": True}, torch.tensor([PROMPTS[0]])
    register_attention("twice")(twice)
    llama.model.set_attn_implementation("twice")
    with watched(llama, layers=3, rows=-2) as seen:
        llama.model(ids)
    assert torch.equal(seen.weights[0][:, 0], kept["weights"][:, :, [-2]])
    kept["told"] = False
    with watched(llama, "outputs") as seen:
        llama.model(ids)
    assert len(seen.outputs) == 1
    with pytest.raises(UserError, match="'twice' says nothing about its weights"), watched(llama):
        llama.model(ids)


@pytest.mark.parametrize("call, said", [
    ({"what": "values"}, "what: expected one of weights, outputs"),
    ({"layers": 4}, "random-llama has no heads in a layer 4: those that have are 0, 1, 2, 3"),
    ({"layers": -1}, "no heads in a layer -1"),
    ({"what": ()}, "what: none are given"), ({"layers": ()}, "layers: none are given"),
    ({"rows": ()}, "rows: none are given"), ({"rows": (-1, -1)}, "names one of them twice"),
    ({"rows": 1.5}, "rows: expected a whole number"),
    ({"rows": (-1, -41)}, "row -41 cannot be watched: this pass reads 40 tokens. Row -1 is in"),
    ({"rows": 40, "what": "outputs"}, "row 40 cannot be watched"),
])
def test_what_cannot_be_watched(call, said, llama):
    with pytest.raises(UserError, match=re.escape(said)), watched(llama, **call):
        llama.model(torch.tensor([PROMPTS[0]]))


def test_weights_are_watched_once(lm):
    with watched(lm, "weights") as seen, watched(lm, "outputs") as other:
        lm.model(torch.tensor([PROMPTS[0]]))
        with pytest.raises(UserError, match="being watched already"), watched(lm, "weights"):
            pytest.fail("entered")
        lm.model(torch.tensor([PROMPTS[0]]))
    assert len(seen.weights) == len(other.outputs) == 2


def test_a_cache_of_a_fixed_size_is_refused(llama):
    cache = StaticCache(config=llama.model.config, max_cache_len=64)
    with pytest.raises(UserError, match="cache of a fixed size"), watched(llama):
        llama.model(torch.tensor([PROMPTS[0]]), past_key_values=cache)


@pytest.mark.usefixtures("forgotten")
def test_a_score_of_ones_own_is_given_the_same(lm):
    """Of each row that decided a token: from one pass over prompt and answer, without any cache."""
    cases, errors = [], []

    @register_score("own", watched=("weights", "outputs"))
    def own(case, answer):
        ids, steps = torch.tensor([[*case.input_ids, *answer.tokens]]), len(answer.tokens)
        rows = range(-steps - 1, -1)
        with torch.no_grad(), watched(lm, rows=rows) as seen:
            lm.model(ids)
        expected = seen.weights[0][0].permute(2, 0, 1, 3)[..., :-1], seen.outputs[0][0].permute(
            2, 0, 1, 3)
        cases.append(case)
        for given, right in zip((answer.weights, answer.outputs), expected, strict=True):
            assert given.shape == right.shape
            errors.append(abs(given - right.numpy()).max())
        return answer.weights[..., slice(*case.needle_span)].sum(-1).mean(0)

    config = DetectConfig(score="own", lengths=(240, 300), depths=(0.2,), needles=2,
                          max_new_tokens=4)
    detect(lm, config)
    assert len(cases) == 4 and max(errors) < 2e-4


@pytest.mark.usefixtures("forgotten")
def test_a_score_that_watches_is_one_of_the_model_itself(llama):
    @SCORES.register("outputs alone")
    class Outputs(ScoreKind):
        watched = ("outputs",)

        def score(self, case, answer):
            assert not answer.weights.size
            return abs(answer.outputs).mean((0, 3))

    config = DetectConfig(score="outputs alone", lengths=(240,), depths=(0.2,), needles=1,
                          max_new_tokens=4)
    assert (run_cases(llama, config)[0] > 0).all()
    with pytest.raises(UserError, match="cannot be measured under a variant"):
        run_cases(llama, config, watch=lambda ids, **how: None)
