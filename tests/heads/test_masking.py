"""Heads are chosen as section 4.1 says; masked ones write nothing, and the weights come back."""

from collections import Counter

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model

from rmutils import DetectConfig, detect
from rmutils.core.errors import UserError
from rmutils.heads import HeadScores
from rmutils.heads.masking import (
    MATCHED,
    choose,
    count_displaced,
    draw_layer_matched,
    mask_heads,
    scaled_outputs,
)
from rmutils.models.engine.contrastive_decoding import ContrastiveDecoding
from rmutils.models.head_blocks import projections
from rmutils.models.products import use_onednn
from tests.architectures import OWN, make
from tests.conftest import two_families

IDS = torch.arange(100, 160)[None]
HEADS = [(0, 1), (2, 0), (2, 3), (3, 2)]


def logits(lm) -> torch.Tensor:
    with torch.inference_mode():
        return lm.model(IDS).logits


def assert_same(one, other):
    torch.testing.assert_close(one, other, rtol=0, atol=1e-4 * one.abs().max().item())


def attention(lm, layer):
    return lm.model.model.layers[layer].self_attn


def weights(lm) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in lm.model.state_dict().items()}


def assert_unchanged(lm, before):
    for name, tensor in lm.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def silenced(lm, heads) -> torch.Tensor:
    """Logits where the outputs of heads become 0 before they reach W_o."""
    def silence(layer):
        def hook(module, args):
            outputs = args[0].unflatten(-1, (4, 8)).clone()  # 4 query heads of size 8
            for _, head in filter(lambda pair: pair[0] == layer, heads):
                outputs[:, :, head] = 0
            return (outputs.flatten(-2),)
        return hook

    handles = [attention(lm, i).o_proj.register_forward_pre_hook(silence(i)) for i in range(4)]
    result = logits(lm)
    for handle in handles:
        handle.remove()
    return result


def test_same_as_zeroed_outputs(lm):
    expected = silenced(lm, HEADS)
    with mask_heads(lm, HEADS):
        found = logits(lm)
    assert_same(found, expected)
    assert (found - logits(lm)).abs().max() > 0.1


@two_families
def test_scaled_outputs_lie_on_the_line_between_masked_and_whole(lm):
    """In what a layer's attention writes; the weights come back, also after an exception."""
    before, size = weights(lm), lm.shape[1]
    inputs = torch.randn(3, attention(lm, 1).o_proj.in_features)
    whole = attention(lm, 1).o_proj(inputs)
    with mask_heads(lm, [(1, size - 1)]):
        masked = attention(lm, 1).o_proj(inputs)
    with pytest.raises(ZeroDivisionError), scaled_outputs(lm, [(1, size - 1)], 0.25):
        torch.testing.assert_close(attention(lm, 1).o_proj(inputs), masked * 0.75 + whole * 0.25)
        raise ZeroDivisionError
    assert_unchanged(lm, before)


@two_families
def test_nested(lm):
    """The inner mask shares a head with the outer one, which stays masked. Weights come back, also
    after an exception."""
    before = weights(lm)
    outer, both = silenced(lm, HEADS[:2]), silenced(lm, HEADS)
    with pytest.raises(ZeroDivisionError), mask_heads(lm, HEADS[:2]):
        with mask_heads(lm, HEADS[1:]):
            assert_same(logits(lm), both)
        assert_same(logits(lm), outer)
        raise ZeroDivisionError
    assert_unchanged(lm, before)


@pytest.mark.parametrize("head", [(4, 0), (0, 4), (-1, 0), (0, -1)])
def test_no_such_head(llama, head):
    before = weights(llama)
    with pytest.raises(UserError, match=rf"no head {head[0]}-{head[1]}: it has 4 layers of 4"), \
            mask_heads(llama, [(0, 0), head]):
        pytest.fail("entered")
    assert_unchanged(llama, before)


def test_truth_is_no_layer(llama):
    with pytest.raises(UserError, match="expected numbers"), mask_heads(llama, [(True, 0)]):
        pytest.fail("entered")


@pytest.fixture
def scores() -> HeadScores:
    """2 layers x 4 heads in one run."""
    return HeadScores(np.array([[[0.2, 0.0, 0.1, 0.05], [0.0, 0.9, 0.04, 0.0]]]), "some-model")


RETRIEVAL = [(1, 1), (0, 0), (0, 2)]


def test_as_many_other_heads_are_chosen(scores):
    """Over many seeds each of the heads that may be drawn is, and no other; always 3 of them."""
    others = {(0, 1), (0, 3), (1, 0), (1, 2), (1, 3)}
    for policy, allowed in {"non-retrieval": others, "random": others | {*RETRIEVAL}}.items():
        draws = [choose(scores, policy, tau=0.1, seed=seed) for seed in range(60)]
        assert all(len(set(heads)) == len(heads) == 3 for heads in draws)
        assert {head for heads in draws for head in heads} == allowed
        assert choose(scores, policy, top_k=3) == draws[42]


def matched_slowly(shape, like, exclude, seed):
    """Head by head: the next of a shuffled layer, or else of the layer that is nearest."""
    rng = np.random.default_rng(seed)
    order = {layer: [(layer, int(h)) for h in rng.permutation(shape[1])]
             for layer in range(shape[0])}
    free = {layer: [h for h in heads if h not in exclude] for layer, heads in order.items()}
    own, astray = [], []
    for layer, _ in sorted(like):
        (own if free[layer] else astray).append(free[layer].pop(0) if free[layer] else layer)
    for layer in astray:
        ranked = sorted(free, key=lambda other: (abs(other - layer), other))
        own.append(free[next(other for other in ranked if free[other])].pop())
    return sorted(own), len(astray)


@pytest.mark.parametrize("seed", range(30))
def test_layer_matched_heads_are_in_the_same_layers(seed):
    """Against a slow second draw, with and without the retrieval heads among those to draw."""
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 7, 2))
    heads = list(np.ndindex(*shape))
    count = int(rng.integers(0, len(heads) // 2 + 1))
    like = [heads[i] for i in rng.choice(len(heads), count, replace=False)]
    for exclude in (like, []):
        drawn = draw_layer_matched(shape, like, exclude=exclude, seed=seed)
        expected, astray = matched_slowly(shape, like, {*exclude}, seed)
        assert drawn == expected and len({*drawn}) == len(like) and not {*drawn} & {*exclude}
        assert count_displaced(drawn, like) == astray == (astray if exclude else 0)


def test_every_head_of_a_layer_is_drawn_equally_often():
    like = [(1, 0), (1, 4)]
    drawn = Counter(head for seed in range(1000)
                    for head in draw_layer_matched((3, 6), like, exclude=like, seed=seed))
    assert {*drawn} == {(1, 1), (1, 2), (1, 3), (1, 5)}  # each in half of the draws
    assert draw_layer_matched((9, 9), [(3, 1)]) == draw_layer_matched((9, 9), [(3, 1)], seed=42)
    assert all(430 < times < 570 for times in drawn.values())


def test_layer_matched_policies(scores):
    """Layer 0 has two retrieval heads and two others, layer 1 one and three."""
    assert MATCHED == "layer-matched-non-retrieval" and len(choose(scores, MATCHED, tau=0.1)) == 3
    for policy, allowed in (("layer-matched-non-retrieval", {(0, 1), (0, 3), (1, 0), (1, 2),
                                                             (1, 3)}),
                            ("layer-matched-random", {*np.ndindex(2, 4)})):
        draws = [choose(scores, policy, tau=0.1, seed=seed) for seed in range(60)]
        assert all([layer for layer, _ in heads] == [0, 0, 1] for heads in draws)
        assert {head for heads in draws for head in heads} == allowed


def test_choices_that_cannot_be_made(scores):
    for policy, wanted, message in (
        ("retrieval", {"tau": 0.95}, "no head of some-model reaches tau=0.95"),
        ("random", {"top_k": 9}, "top_k=9: some-model has 8 heads"),
        ("non-retrieval", {"top_k": 5}, "5 random heads asked for, but only 3"),
        ("layer-matched-non-retrieval", {"top_k": 5}, "5 random heads asked for, but only 3"),
        ("other", {"tau": 0.1}, "policy: expected one of retrieval, non-retrieval, random"),
    ):
        with pytest.raises(UserError, match=message):
            choose(scores, policy, **wanted)


GRID = DetectConfig(lengths=(150,), depths=(0.5,), needles=1, max_new_tokens=2)
USES = {
    "mask": lambda lm: mask_heads(lm, [(1, 2)]).__enter__(),
    "mask, mean": lambda lm: mask_heads(lm, [(1, 2)], "mean").__enter__(),
    "scale": lambda lm: scaled_outputs(lm, [(1, 2)], 0.5).__enter__(),
    "contrast": lambda lm: ContrastiveDecoding([(1, 2)]).masking(lm.model).__enter__(),
    **{score: lambda lm, score=score: detect(lm, GRID.changed({"score": score}))
       for score in ("copy", "dla", "patching", "query")}}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", ["DiffLlama", "BitNet"])
def test_blocks_that_are_no_heads_are_refused(name, use, tokenizer):
    """Pairs of heads; and a norm of all heads together before the projection."""
    lm = make(name, tokenizer)
    before = {part: weight.clone() for part, weight in lm.model.state_dict().items()}
    with pytest.raises(UserError, match="layer 0, what the output projection reads is not a block"):
        USES[use](lm)
    assert all(torch.equal(weight, before[part])
               for part, weight in lm.model.state_dict().items())


@pytest.mark.parametrize("use", USES)
def test_an_adapter_that_is_not_merged_is_refused(use, llama):
    """Its lora_A reads the masked columns, too."""
    get_peft_model(llama.model, LoraConfig(
        target_modules=["o_proj"], layers_to_transform=[1], r=2, init_lora_weights=False))
    with pytest.raises(UserError, match="layer 1 is a peft.*merge_and_unload"):
        USES[use](llama)


def test_other_projections_may_have_one(llama):
    get_peft_model(llama.model, LoraConfig(target_modules=["q_proj"], r=2))
    with mask_heads(llama, [(1, 2)]):
        assert not llama.model.model.layers[1].self_attn.o_proj.weight[:, 16:24].any()


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name in OWN if name not in ("DiffLlama", "BitNet")])
def test_a_block_is_what_one_head_writes(name, tokenizer):
    """In each family: other columns of the projection do not change when a head's values do."""
    lm = make(name, tokenizer)
    use_onednn(lm.model)
    found, ids, seen = projections(lm.model), torch.arange(5, 45)[None], []
    assert list(found) == lm.layers
    layer, projection = [*found.items()][-1]
    hook = projection.register_forward_pre_hook(lambda _, given: seen.append(given[0][0]))
    values = lm.model.model.layers[layer].self_attn.v_proj
    lm.model(ids, use_cache=False)
    change = values.register_forward_hook(lambda module, given, output: torch.cat(
        [output[..., :8], 2 * output[..., 8:]], -1))  # of the key head that heads 2 and 3 read
    lm.model(ids, use_cache=False)
    change.remove()
    hook.remove()
    half = projection.in_features // 2
    torch.testing.assert_close(seen[0][:, :half], seen[1][:, :half])
    torch.testing.assert_close(2 * seen[0][:, half:], seen[1][:, half:])
