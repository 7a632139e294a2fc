"""A head that is masked by its mean writes what it writes on average over plain text, always."""

from contextlib import ExitStack

import pytest
import torch

from rmutils.core.errors import UserError
from rmutils.core.paths import CORPORA
from rmutils.corpora.niah import load_haystacks
from rmutils.heads import masking
from rmutils.heads.masking import mask_heads
from tests.conftest import two_families
from tests.heads.test_masking import HEADS, assert_same, assert_unchanged, logits, weights


@torch.inference_mode()
def slow_means(lm, layer: int, count: int, tokens: int) -> torch.Tensor:
    """What the heads of a layer give to W_o, (heads, size): one passage at a time, by eager
    attention, summed up head by head and token by token."""
    turn = lm.tokenizer(lm.user_turn()[0], add_special_tokens=False)["input_ids"]
    parts = [lm.tokenizer(haystack.text, add_special_tokens=False)["input_ids"]
             for haystack in load_haystacks(CORPORA["book"] / "haystack")]
    lm.model.set_attn_implementation("eager")
    sums, seen = torch.zeros(4, 8, dtype=torch.float64), []
    hook = lm.model.model.layers[layer].self_attn.o_proj.register_forward_pre_hook(
        lambda module, inputs: seen.append(inputs[0]))
    for i in range(count):
        part, start = parts[i % len(parts)], i // len(parts) * tokens
        lm.model(torch.tensor([[*turn, *part[start : start + tokens]]]))
        for row in seen.pop()[0, len(turn):]:
            for head in range(4):
                sums[head] += row[8 * head : 8 * head + 8]
    hook.remove()
    lm.model.set_attn_implementation("sdpa")
    return sums / (count * tokens)


def test_same_as_means_in_place_of_outputs(lm, monkeypatch):
    """Both query heads of a key head, and one of two: each has a mean of its own."""
    monkeypatch.setattr(masking, "CALIBRATION", (3, 24))
    before = weights(lm)
    means = {layer: slow_means(lm, layer, 3, 24) for layer in (0, 2, 3)}

    def replace(layer):
        def hook(module, inputs):
            outputs = inputs[0].clone()
            for _, head in (pair for pair in HEADS if pair[0] == layer):
                outputs[..., 8 * head : 8 * head + 8] = means[layer][head]
            return (outputs,)
        return hook

    handles = [lm.model.model.layers[i].self_attn.o_proj.register_forward_pre_hook(replace(i))
               for i in means]
    expected = logits(lm)
    for handle in handles:
        handle.remove()
    with mask_heads(lm, HEADS, "mean"):
        found = logits(lm)
    assert_same(found, expected)
    assert_unchanged(lm, before)
    with ExitStack() as masked:
        with torch.device("meta"):  # where torch makes tensors is not where the model is
            masked.enter_context(mask_heads(lm, HEADS, "mean"))
        assert torch.equal(logits(lm), found)
    with mask_heads(lm, HEADS):
        assert (found - logits(lm)).abs().max() > 0.01


def test_means_are_over_sixteen_passages_and_are_added_to_what_is_written(llama):
    """A mask within a mask of the same layer adds its part."""
    attention = llama.model.model.layers[1].self_attn
    means = slow_means(llama, 1, 16, 128)
    added = [attention.o_proj.weight.detach().double()[:, 8 * head : 8 * head + 8] @ means[head]
             for head in (2, 0)]
    with mask_heads(llama, [(1, 2)], "mean"):
        assert not attention.o_proj.bias.requires_grad
    for outer, inner in (([(1, 2)], [(1, 0)]), ([(1, 2), (1, 0)], [])):
        with mask_heads(llama, outer, "mean"), mask_heads(llama, inner, "mean"):
            torch.testing.assert_close(attention.o_proj.bias.double(), added[0] + added[1],
                                       rtol=1e-4, atol=1e-5)
    assert attention.o_proj.bias is None


@two_families
def test_nested_and_after_an_exception(lm, monkeypatch):
    """A head that is off stays off: what it no longer writes has a mean of zero."""
    monkeypatch.setattr(masking, "CALIBRATION", (2, 16))
    before = weights(lm)
    with mask_heads(lm, HEADS):
        off = logits(lm)
    with pytest.raises(ZeroDivisionError), mask_heads(lm, HEADS):
        with mask_heads(lm, HEADS[1:], "mean"), mask_heads(lm, HEADS[1:], "query"):
            assert_same(logits(lm), off)
        assert torch.equal(logits(lm), off)
        raise ZeroDivisionError
    assert_unchanged(lm, before)


def test_no_such_ablation(llama):
    with pytest.raises(UserError, match="how: expected one of .*'means'. Did you mean mean"), \
            mask_heads(llama, [(0, 0)], "means"):
        pytest.fail("entered")
