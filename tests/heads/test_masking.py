"""Masked heads write nothing, and the weights come back."""

from __future__ import annotations

import pytest
import torch

from rmutils.errors import UserError
from rmutils.heads.masking import mask_heads

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


def test_heads_are_query_heads(lm):
    """Key head 1 serves the query heads 2 and 3: without its values both are silent."""
    with mask_heads(lm, [(1, 2), (1, 3)]):
        found = logits(lm)
    attention(lm, 1).v_proj.weight.data[8:16] = 0
    assert_same(found, logits(lm))


def test_each_head_is_another(lm):
    results = []
    for head in range(4):
        with mask_heads(lm, [(1, head)]):
            results.append(logits(lm))
    gaps = [(a - b).abs().max() for i, a in enumerate(results) for b in results[:i]]
    assert min(gaps) > 0.01


def test_weights_come_back(lm):
    before = weights(lm)
    with mask_heads(lm, [*HEADS, HEADS[0]]):
        assert not torch.equal(attention(lm, 2).o_proj.weight, before[
            "model.layers.2.self_attn.o_proj.weight"])
        assert torch.equal(attention(lm, 1).o_proj.weight, before[
            "model.layers.1.self_attn.o_proj.weight"])
    assert_unchanged(lm, before)


def test_weights_come_back_after_an_exception(lm):
    before = weights(lm)
    with pytest.raises(ZeroDivisionError), mask_heads(lm, HEADS):
        assert (attention(lm, 3).o_proj.weight[:, 16:24] == 0).all()
        raise ZeroDivisionError
    assert_unchanged(lm, before)


def test_nested(lm):
    """The inner mask shares a head with the outer one, which stays masked."""
    before = weights(lm)
    outer, both = silenced(lm, HEADS[:2]), silenced(lm, HEADS)
    with mask_heads(lm, HEADS[:2]):
        with mask_heads(lm, HEADS[1:]):
            assert_same(logits(lm), both)
        assert_same(logits(lm), outer)
    assert_unchanged(lm, before)


def test_masks_nothing(llama):
    expected = logits(llama)
    with mask_heads(llama, []):
        assert torch.equal(logits(llama), expected)


@pytest.mark.parametrize("head", [(4, 0), (0, 4), (-1, 0), (0, -1)])
def test_no_such_head(llama, head):
    before = weights(llama)
    with pytest.raises(UserError, match=rf"no head {head[0]}-{head[1]}: it has 4 layers of 4"), \
            mask_heads(llama, [(0, 0), head]):
        pytest.fail("entered")
    assert_unchanged(llama, before)


def test_top_level_name():
    import rmutils

    assert rmutils.mask_heads is mask_heads
