"""Ms-PoE against positions that are divided before the model turns anything."""

import math
import sys
from contextlib import ExitStack
from weakref import WeakKeyDictionary

import pytest
import torch
from transformers import AttentionInterface, GPT2Config, GPT2LMHeadModel

from rmutils.attention import rope as rotation
from rmutils.attention.ms_poe import MsPoe, looked_at, ranks, ratios_of, rescaled
from rmutils.attention.rope import turn
from rmutils.attention.select_attention import Select, selecting
from rmutils.core.errors import UserError
from rmutils.models.engine.generation import generate
from rmutils.models.engine.implementations import register, using
from tests.attention.by_hand import expects, heads_by_hand
from tests.conftest import two_families

PROMPT = torch.arange(7, 47)[None]
WIDE = MsPoe(s_min=1, s_max=8, first_layer=1)


def logits(lm, ids=PROMPT, **kwargs):
    with torch.inference_mode():
        return lm.model(ids, **kwargs).logits


def divided(lm, ratios):
    """Logits where each head turns queries and keys by positions divided by its own ratio."""
    with heads_by_hand(lm, ratios=ratios):
        return logits(lm)


def test_each_head_on_its_own_scale(lm):
    torch.testing.assert_close(divided(lm, {}), logits(lm), rtol=1e-4, atol=1e-4)
    plain = logits(lm)
    ratios = {i: [1, 1 + 7 / 3, 1 + 14 / 3, 8] for i in (1, 2)}
    with rescaled(lm.model, MsPoe(s_min=1, s_max=8, first_layer=1, last_layer=2)):
        found = logits(lm)
    torch.testing.assert_close(found, divided(lm, ratios), rtol=1e-4, atol=1e-4)
    assert (found - plain).abs().max() > 0.01
    torch.testing.assert_close(logits(lm), plain, rtol=0, atol=0)  # restored


@two_families
def test_only_differences_of_positions_count(lm):
    with rescaled(lm.model, WIDE):
        here = logits(lm)
        there = logits(lm, position_ids=torch.arange(100, 140)[None])
    torch.testing.assert_close(here, there, rtol=1e-3, atol=1e-3)


@two_families
def test_cached_decoding_is_the_full_pass(lm):
    """Step by step and for prompts side by side, one of them padded."""
    prompts = [PROMPT[0].tolist(), PROMPT[0, :25].tolist()]
    with rescaled(lm.model, WIDE):
        said = generate(lm, prompts, max_new_tokens=6)
        assert all(expects(lm, *one) for one in zip(prompts, said, strict=True))


@two_families
def test_order_by_the_prompt(lm):
    config = MsPoe(first_layer=1, order="position_aware")
    with rescaled(lm.model, config, PROMPT[0].tolist()) as scales:
        found = {layer: own.ratios.tolist() for layer, own in scales.items()}
        once = logits(lm)
        torch.testing.assert_close(logits(lm), once, rtol=0, atol=0)  # the order stays
    assert [*found] == [1, 2, 3]
    for ratios in found.values():
        assert sorted(ratios) == pytest.approx([1.2, 1.4, 1.6, 1.8])
    assert not hasattr(lm.model.base_model.layers[1].self_attn, "ms_poe")


def test_keys_looked_at_in_a_prompt(lm, monkeypatch):
    """In the first layer, which reads the same whatever the ratios: heads are gone through one by
    one, and the model's own turning is switched off. Some families have a window there."""
    shares = []

    def attention(module, query, key, value, mask, *, scaling, **kwargs):
        seen = torch.ones(query.shape[2], dtype=torch.bool) if mask is None else mask[0, 0, -1]
        if module.layer_idx == 0:
            for head in range(4):
                weights = (query[0, head, -1] @ key[0, head // 2].T * scaling)[seen].softmax(0)
                shares.append(int((weights > 3 * weights.mean()).sum()) / len(weights))
        return value.repeat_interleave(2, 1).transpose(1, 2), None

    register("unturned", attention)
    modeling = sys.modules[type(lm.model).__module__]
    with monkeypatch.context() as patch, using(lm.model, "unturned"):
        patch.setattr(modeling, "apply_rotary_pos_emb", lambda q, k, *args, **kwargs: (q, k))
        logits(lm)
    AttentionInterface._global_mapping.pop("unturned")
    monkeypatch.setattr(rotation, "_CHECKED", WeakKeyDictionary())
    with ExitStack() as switched:
        with torch.device("meta"):  # where torch makes tensors is not where the model is
            scales = switched.enter_context(rescaled(lm.model, MsPoe(
                first_layer=0, order="position_aware"), PROMPT[0].tolist()))
        assert scales[0].shares.tolist() == pytest.approx(shares)
    assert max(shares) > 0


def test_a_key_is_looked_at_beyond_three_times_the_mean():
    """With 7 other keys of weight 1, one of weight w gets 8 w / (w + 7) times the mean."""
    frequencies, places = torch.tensor([0.7, 0.1]), torch.arange(8)
    key, query = torch.zeros(1, 2, 8, 4), torch.zeros(1, 2, 8, 4)
    query[..., 0] = 1
    for head, times in enumerate((2.9, 3.1)):
        key[0, head, 4, 0] = math.log(7 * times / (8 - times))
    query, key = turn(query, places, frequencies), turn(key, places, frequencies)
    assert looked_at(query, key, None, 1.0, frequencies).tolist() == [0, 1 / 8]


def test_ranks_and_the_reference_that_confuses_them():
    shares = torch.tensor([0.1, 0.4, 0.2, 0.3])
    aware, as_written = MsPoe(order="position_aware"), MsPoe(order="reference")
    # head 1 looks at most keys, then 3, 2, 0
    assert ranks(shares, "position_aware").tolist() == [3, 0, 2, 1]
    assert ranks(shares, "reference").tolist() == [1, 3, 2, 0]
    assert ratios_of(torch.tensor([1, 0]), aware).tolist() == pytest.approx([1.8, 1.2])
    assert ratios_of(torch.tensor([0]), aware).tolist() == pytest.approx([1.2])
    for order in ("position_aware", "reference"):  # heads that look at as many: by number
        assert ranks(torch.zeros(100), order).tolist() == [*range(100)]
    assert ratios_of(torch.tensor([3, 0, 2, 1]), aware).tolist() == pytest.approx(
        [1.8, 1.2, 1.6, 1.4])
    assert ratios_of(torch.tensor([0, 1, 2, 3]), as_written).tolist() == pytest.approx(
        [1.2, 1.35, 1.5, 1.65])


def test_reference_keys_stand_on_the_scale_of_their_group(llama):
    """So a model whose two groups have equal ratios differs from `position_aware` by nothing else,
    and one whose ratios differ within a group breaks what depends on differences of positions."""
    config = MsPoe(first_layer=1, order="reference")
    with rescaled(llama.model, config, PROMPT[0].tolist()) as scales:
        for own in scales.values():
            own.ratios = torch.tensor([1.2, 1.2, 1.5, 1.5])
        here = logits(llama)
    with rescaled(llama.model, MsPoe(first_layer=1)) as scales:
        for own in scales.values():
            own.ratios = torch.tensor([1.2, 1.2, 1.5, 1.5])
        torch.testing.assert_close(logits(llama), here, rtol=0, atol=0)
    moved = {order: moved_by_hidden_tokens(llama, MsPoe(first_layer=1, order=order))
             for order in ("linear", "reference")}
    assert moved["linear"] < 1e-4 and moved["reference"] > 0.01


def moved_by_hidden_tokens(lm, config):
    """How far logits move when tokens that none may look at stand before a prompt."""
    hidden = 20
    ids = torch.cat([torch.full((1, hidden), 5), PROMPT], dim=1)
    mask = (torch.arange(ids.shape[1]) >= hidden)[None]
    places = torch.arange(ids.shape[1])[None]  # hidden tokens count
    with rescaled(lm.model, config, PROMPT[0].tolist()) as scales:
        for own in scales.values():
            own.ratios = torch.tensor([1.2, 1.35, 1.5, 1.65])
        alone = logits(lm)
        behind = logits(lm, ids, attention_mask=mask.long(), position_ids=places)[:, hidden:]
    return (behind - alone).abs().max()


@pytest.mark.parametrize(("config", "prompt", "message"), [
    (MsPoe(last_layer=4), (), "layers 2 to 4: the model has 0 to 3"),
    (MsPoe(first_layer=5), (), "layers 5 to 3"),
    (MsPoe(order="reference"), (), "depends on the prompt")])
def test_refused(llama, config, prompt, message):
    with pytest.raises(UserError, match=message), rescaled(llama.model, config, prompt):
        pass


@pytest.mark.parametrize("layer", [2, 3])
def test_layers_that_turn_otherwise(llama, monkeypatch, layer):
    """One has no positions, one pairs neighbours: with ratios of 1 nothing would show it."""
    modeling = sys.modules[type(llama.model).__module__]
    own, calls = modeling.apply_rotary_pos_emb, []

    def odd(q, k, cos, sin, **kwargs):
        calls.append(0)
        if (len(calls) - 1) % 4 != layer:
            return own(q, k, cos, sin, **kwargs)
        if layer == 2:
            return q, k
        order = torch.arange(q.shape[-1]).view(-1, 2).T.flatten()
        back = order.argsort()
        return [part[..., back] for part in own(q[..., order], k[..., order], cos, sin, **kwargs)]

    monkeypatch.setattr(modeling, "apply_rotary_pos_emb", odd)
    monkeypatch.setattr(rotation, "_CHECKED", WeakKeyDictionary())
    with pytest.raises(UserError, match=f"llama: layer {layer} does not turn its queries"), \
            rescaled(llama.model):
        pass


def test_models_built_otherwise():
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=20))
    for switched in (rescaled(model), selecting(model, Select(filter_layer=0))):
        with pytest.raises(UserError, match="gpt2: its layers are not where"), switched:
            pass


def test_models_without_rotary_positions(llama):
    llama.model.base_model.rotary_emb = None
    with pytest.raises(UserError, match="llama: layer 2 has no rotary positions"), \
            rescaled(llama.model):
        pass
    with pytest.raises(UserError, match="s_min is above s_max"):
        MsPoe(s_min=2)


@two_families
def test_other_orders_and_spacings(lm):
    """By hand, for four heads; a spared head keeps its place in a layer alone."""
    def ratios(**fields):
        with rescaled(lm.model, MsPoe(s_min=1, s_max=8, first_layer=0, **fields)) as scales:
            return {layer: own.ratios.tolist() for layer, own in scales.items()}

    assert [*ratios(last_layer=0)] == [0] and [*ratios()] == [0, 1, 2, 3]
    assert ratios(order="reversed")[1] == pytest.approx([8, 1 + 14 / 3, 1 + 7 / 3, 1])
    assert ratios(spacing="log")[1] == pytest.approx([1, 2, 4, 8])
    assert ratios(spacing="two")[1] == [1, 1, 8, 8]
    odd = MsPoe(s_min=1, s_max=8, spacing="two")
    assert ratios_of(torch.arange(5), odd).tolist() == [1, 1, 8, 8, 8]
    spared = ratios(spared=((1, 3), (1, 2)), spacing="two")
    assert spared[1] == [1, 1, 1, 1]
    assert spared[2] == [1, 1, 8, 8]
