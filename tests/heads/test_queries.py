"""Heads without queries look at all they may see alike; the others look where they always did."""

import numpy as np
import pytest
import torch

from rmutils.heads import mask_heads
from tests.conftest import two_families

N = 60
IDS = torch.arange(100, 100 + N)[None]
HEADS = [(0, 1), (0, 2), (2, 0), (3, 3)]
"""In Olmo 3 and Gemma 3 the layers 0 and 2 have windows of 24 tokens, layer 3 has none."""


@torch.inference_mode()
def logits(lm) -> torch.Tensor:
    return lm.model(IDS).logits


@torch.inference_mode()
def rows(lm) -> list[np.ndarray]:
    """Attention of each layer, (heads, queries, keys), by transformers' own eager attention."""
    return [layer[0].numpy() for layer in lm.model(IDS, output_attentions=True).attentions]


def kinds(lm) -> list[str]:
    """What each layer sees; of a family without windows, all layers see everything."""
    return getattr(lm.model.config, "layer_types", None) or ["full_attention"] * lm.shape[0]


def uniform(lm, layer: int) -> np.ndarray:
    """Equal shares of what a token may see: those before it, itself, within the window."""
    window = 24 if kinds(lm)[layer] == "sliding_attention" else N
    shares = np.zeros((N, N))
    for i in range(N):
        seen = [j for j in range(N) if i - window < j <= i]
        shares[i, seen] = 1 / len(seen)
    return shares


def test_masked_heads_look_at_all_alike(lm):
    lm.model.set_attn_implementation("eager")
    usual = rows(lm)
    with mask_heads(lm, HEADS, "query"):
        found = rows(lm)
    assert (lm.family in {"olmo3", "gemma3_text"}) == (kinds(lm)[2] == "sliding_attention")
    for layer, head in HEADS:
        np.testing.assert_allclose(found[layer][head], uniform(lm, layer), atol=1e-6)
        assert np.abs(usual[layer][head] - uniform(lm, layer)).max() > 0.1
    others = [0, 3]  # in layer 0, where no masked head of an earlier layer changes what they read
    np.testing.assert_array_equal(found[0][others], usual[0][others])
    after = rows(lm)
    assert all((a == b).all() for a, b in zip(after, usual, strict=True))


def test_masked_heads_write_the_mean_of_values(lm):
    """With the attention that models are loaded with, and by query heads: 4 share 2 value heads."""
    attention, kept = lm.model.model.layers[0].self_attn, {}
    for name, take in {"v_proj": lambda inputs, output: output,
                       "o_proj": lambda inputs, output: inputs[0]}.items():
        getattr(attention, name).register_forward_hook(
            lambda module, inputs, output, name=name, take=take:
            kept.update({name: take(inputs, output)}))
    with mask_heads(lm, HEADS, "query"):
        logits(lm)
    values = kept["v_proj"][0].unflatten(-1, (2, 8)).numpy()
    written = kept["o_proj"][0].unflatten(-1, (4, 8)).numpy()
    for head, value_head in ((1, 0), (2, 1)):
        np.testing.assert_allclose(written[:, head], uniform(lm, 0) @ values[:, value_head],
                                   atol=1e-5)


@two_families
def test_same_token_by_token(lm):
    """Behind a cache too a head sees all tokens alike."""
    with mask_heads(lm, HEADS, "query"), torch.inference_mode():
        whole = logits(lm)
        cache = lm.model(IDS[:, :40], use_cache=True).past_key_values
        steps = [lm.model(IDS[:, i : i + 1], past_key_values=cache).logits for i in range(40, N)]
    torch.testing.assert_close(torch.cat(steps, 1), whole[:, 40:], rtol=0,
                               atol=1e-4 * whole.abs().max().item())


@two_families
def test_nested_and_after_an_exception(lm):
    """The inner mask shares heads with the outer one, which stay masked."""
    usual = logits(lm)
    with mask_heads(lm, HEADS, "query"):
        all_masked = logits(lm)
    with mask_heads(lm, HEADS[:2], "query"):
        some_masked = logits(lm)
    with pytest.raises(ZeroDivisionError), mask_heads(lm, HEADS[:2], "query"):
        with mask_heads(lm, HEADS[1:], "query"):
            assert torch.equal(logits(lm), all_masked)
        assert torch.equal(logits(lm), some_masked)
        raise ZeroDivisionError
    assert torch.equal(logits(lm), usual)
