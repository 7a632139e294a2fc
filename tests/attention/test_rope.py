"""Extended positions against transformers' own, and against sums by hand."""

import math
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from rmutils import load_model
from rmutils.attention.rope import (
    RopeExtension,
    extend,
    extended_frequencies,
    inverse_frequencies,
    new_base,
    ramp_in_turns,
    wavelengths,
)
from rmutils.core.errors import UserError
from tests.conftest import make_lm

METHODS = ("yarn", "interpolation", "ntk", "base")
OLMO = 500_000 ** -(torch.arange(64) / 64)
"""Heads of 128, the base of Olmo 3."""


@pytest.mark.parametrize("layers", ["full", "all"])
@pytest.mark.parametrize("method", METHODS)
def test_each_layer_as_asked(lm, method, layers, tmp_path):
    """transformers computes the angles; layers with a window keep theirs, unless told otherwise.
    A saved model comes back with them."""
    before = [inverse_frequencies(lm.model, i).clone() for i in range(4)]
    extend(lm.model, RopeExtension(method=method, factor=4, layers=layers))
    kinds = lm.model.config.layer_types if lm.family in {"olmo3", "gemma3_text"} else ["full"] * 4
    for i, old in enumerate(before):
        same = torch.equal(inverse_frequencies(lm.model, i), old)
        assert same == (layers == "full" and "sliding" in kinds[i])
    assert lm.window == 4096
    lm.model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = torch.arange(5, 45)[None]
    with torch.inference_mode():
        torch.testing.assert_close(again(ids).logits, lm.model.eval()(ids).logits)


@pytest.mark.parametrize(("base", "trained"), [
    (500_000, 8192), (10_000, 200), (10, 8192), (10_000, 16)])  # ramps that leave the pairs, too
def test_yarn_is_that_of_transformers(base, trained):
    config = LlamaConfig(head_dim=16, rope_parameters={
        "rope_type": "yarn", "rope_theta": base, "factor": 8.0, "beta_fast": 32, "beta_slow": 1,
        "original_max_position_embeddings": trained})
    wanted, attention = ROPE_INIT_FUNCTIONS["yarn"](config, torch.device("cpu"))
    own = base ** -(torch.arange(8) / 8)
    found, factor = extended_frequencies(own, base, trained, RopeExtension())
    torch.testing.assert_close(found, wanted)
    assert factor == pytest.approx(attention)


@pytest.mark.parametrize(("head_dim", "hidden", "fits"), [
    (16, 999, True), (None, 64, True), (None, 128, False), (32, 64, False)])
def test_whole_heads_turn(head_dim, hidden, fits):
    """Eight pairs are a head of 16; where the configuration does not say its size, 64 / 4 is."""
    model = SimpleNamespace(
        base_model=SimpleNamespace(rotary_emb=SimpleNamespace(inv_freq=OLMO[:8])),
        config=SimpleNamespace(model_type="some", head_dim=head_dim, hidden_size=hidden,
                               num_attention_heads=4))
    if fits:
        assert inverse_frequencies(model, 3) is model.base_model.rotary_emb.inv_freq
        return
    with pytest.raises(UserError, match="some: layer 3 has no rotary positions"):
        inverse_frequencies(model, 3)


@pytest.mark.parametrize("method", METHODS)
def test_frequencies_stay_on_their_device(method):
    how = RopeExtension(method=method)
    found = extended_frequencies(OLMO, 500_000, 8192, how)
    with torch.device("meta"):
        again = extended_frequencies(OLMO, 500_000, 8192, how)
    assert torch.equal(found[0], again[0]) and found[1] == again[1]


def test_the_other_methods_by_hand():
    how = RopeExtension(method="interpolation")
    assert torch.equal(extended_frequencies(OLMO, 500_000, 8192, how)[0], OLMO / 8)
    ntk, factor = extended_frequencies(OLMO, 500_000, 8192, RopeExtension(method="ntk"))
    # the slowest pair is interpolated, the fastest stays
    assert ntk[0] == 1 and factor == 1
    torch.testing.assert_close(ntk[-1], OLMO[-1] / 8, rtol=1e-4, atol=0)
    base, _ = extended_frequencies(OLMO, 500_000, 8192, RopeExtension(method="base", theta=4e6))
    torch.testing.assert_close(base[32], torch.tensor(4e6 ** -0.5))
    assert new_base(10_000, 128, RopeExtension(method="base", factor=4)) == 40_000
    assert wavelengths(OLMO)[0] == pytest.approx(2 * math.pi)


@pytest.mark.parametrize("layers", ["full", "all"])
def test_a_model_as_it_ships(layers):
    """Its configuration has keys beside those of the kinds of layers, and says more positions than
    it was trained with: 640, which count."""
    model = load_model("tiny-olmo3").model
    before = [inverse_frequencies(model, i).clone() for i in range(4)]
    extend(model, RopeExtension(method="interpolation", factor=2, trained=640, layers=layers))
    for i, old in enumerate(before):
        changed = layers == "all" or i == 3
        torch.testing.assert_close(inverse_frequencies(model, i), old / (2 if changed else 1))
    assert model.config.max_position_embeddings == 1280


def test_refused(llama):
    extend(llama.model)
    with pytest.raises(UserError, match=r"extended already \(yarn\)"):
        extend(llama.model)


def test_transformers_that_extends_all_layers_is_caught(tokenizer):
    """As it did with Olmo 3 for a while."""
    model = make_lm("olmo3", tokenizer).model
    own = type(model.base_model.rotary_emb)

    class Everywhere(own):
        def __init__(self, config):
            super().__init__(config)
            self.sliding_attention_inv_freq = self.full_attention_inv_freq

    model.base_model.rotary_emb.__class__ = Everywhere
    with pytest.raises(UserError, match=r"layer 0 \(sliding_attention\) of this olmo3 in another"):
        extend(model)


def test_yarn_in_turns_by_hand():
    """Base 10,000, four pairs, a window of 200 tokens: they turn 31.8, 3.18, 0.318 and 0.03 times.

    With turns 32 and 1 the first two keep 0.995 and 0.070 of their own angle (equations 17 to 23).
    """
    old = 10_000.0 ** -(torch.arange(4) / 4)
    new = ramp_in_turns(old, 200, RopeExtension(factor=8)) / old
    kept = [(200 * float(f) / (2 * math.pi) - 1) / 31 for f in old[:2]]
    assert new.tolist() == pytest.approx([k + (1 - k) / 8 for k in kept] + [1 / 8] * 2)
    assert [round(k, 3) for k in kept] == [0.995, 0.07]
    assert ramp_in_turns(old, 300, RopeExtension())[0] == old[0]  # 48 turns
