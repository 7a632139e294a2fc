"""Where heads look under a variant, against attention matrices worked out head by head."""

import copy
import sys
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from transformers import AttentionInterface

from rmutils.attention.gemfilter import GemFilter, choose
from rmutils.attention.ms_poe import MsPoe, rescaled
from rmutils.attention.select_attention import Select
from rmutils.attention.share_attention import Retain, Share
from rmutils.corpora.niah import NiahBuilder, load_haystacks, load_needles
from rmutils.heads.answering import batched, one_by_one
from rmutils.heads.detection import DetectConfig, even_depths, run_cases
from rmutils.longcontext.extension import Extended
from rmutils.models import load_model
from rmutils.models.engine.implementations import register, using
from tests.conftest import two_families
from tests.heads.test_detection import slow_answer

STEPS = 3
WIDE = {"s_min": 1, "s_max": 8, "first_layer": 1}
SHARE = Retain(kept=0.6, prompts=1, tokens=700)


@contextmanager
def by_hand(lm, ratios, sharing):
    """Attention with loops over heads, positions divided before anything is turned, weights of
    essential heads given to others; yields the arg-max of the newest row by layer."""
    modeling, config, looked = sys.modules[type(lm.model).__module__], lm.model.config, {}

    def rope(rows, ratio, layer):
        base = config.rope_parameters
        base = base.get("rope_theta") or base[config.layer_types[layer]]["rope_theta"]
        angle = (torch.arange(len(rows)) / ratio)[:, None] / base ** (torch.arange(0, 8, 2) / 8)
        real, imaginary = rows.chunk(2, dim=-1)
        turned = torch.complex(real, imaginary) * torch.polar(torch.ones_like(angle), angle)
        return torch.cat([turned.real, turned.imag], dim=-1)

    def attention(module, query, key, value, mask, *, scaling, **kwargs):
        layer, size = module.layer_idx, query.shape[2]
        seen = torch.ones(size, size).tril().bool() if mask is None else mask[0, 0]
        weights = []
        for h in range(4):
            ratio = ratios.get(layer, [1, 1, 1, 1])[h]
            q, k = rope(query[0, h], ratio, layer), rope(key[0, h // 2], ratio, layer)
            weights.append((q @ k.T * scaling).masked_fill(~seen, -torch.inf).softmax(-1))
        for essential, others in sharing.get(layer, {}).items():
            for other in others:
                weights[other] = weights[essential]
        looked[layer] = [row.tolist().index(max(row.tolist())) for row in (w[-1] for w in weights)]
        return torch.stack([w @ value[0, h // 2] for h, w in enumerate(weights)], dim=1)[None], None

    register("by_hand", attention)
    turning = modeling.apply_rotary_pos_emb
    try:
        modeling.apply_rotary_pos_emb = lambda q, k, *args, **kwargs: (q, k)
        with using(lm.model, "by_hand"):
            yield looked
    finally:
        modeling.apply_rotary_pos_emb = turning
        AttentionInterface._global_mapping.pop("by_hand")


@torch.inference_mode()
def read_again(lm, prompt, ratios, sharing):
    """Tokens and positions, with everything read again for each token."""
    ids, positions = list(prompt), []
    with by_hand(lm, ratios, sharing) as looked:
        for _ in range(STEPS):
            logits = lm.model(torch.tensor([ids]), use_cache=False).logits
            positions.append([looked[layer] for layer in range(4)])
            ids.append(int(logits[0, -1].argmax()))
    return ids[len(prompt):], np.array(positions)


@torch.inference_mode()
def selected(lm, prompt, p):
    """The same for Select-Attention behind layer 1: a model of the last two layers reads what is
    chosen. It sees the whole prompt for the first token."""
    ids, positions = list(prompt), []
    rest = copy.deepcopy(lm.model)
    rest.set_attn_implementation("eager")
    rest.base_model.layers, rest.config.num_hidden_layers = rest.base_model.layers[2:], 2
    if getattr(rest.config, "layer_types", None):
        rest.config.layer_types = rest.config.layer_types[2:]
    kinds = lm.family == "olmo3"
    for step in range(STEPS):
        with using(lm.model, "eager"):
            whole = lm.model(torch.tensor([ids]), output_hidden_states=True,
                             output_attentions=True, use_cache=False)
        scores = whole.attentions[1][0, :, -1].mean(0)
        order, chosen, total = scores.argsort(descending=True).tolist(), [len(ids) - 1], 0.0
        while order and (total < p or step == 0):
            chosen.append(order.pop(0))
            total += float(scores[chosen[-1]])
        chosen = torch.tensor(sorted({*chosen}))
        gap = chosen[:, None] - chosen
        masks = {kind: torch.where((gap >= 0) & (gap < width), 0.0, -1e9)[None, None]
                 for kind, width in (("full_attention", 9999), ("sliding_attention", 24))}
        later = rest(inputs_embeds=whole.hidden_states[2][:, chosen], position_ids=chosen[None],
                     attention_mask=masks if kinds else masks["full_attention"],
                     output_attentions=True, use_cache=False)
        positions.append([a[0, :, -1].argmax(-1).tolist() for a in whole.attentions[:2]]
                         + [chosen[a[0, :, -1].argmax(-1)].tolist() for a in later.attentions])
        ids.append(int(later.logits[0, -1].argmax()))
    return ids[len(prompt):], np.array(positions)


def expected(lm, variant, prompt):
    match variant:
        case MsPoe():
            with rescaled(lm.model, variant, prompt) as scales:
                ratios = {layer: own.ratios.tolist() for layer, own in scales.items()}
            return read_again(lm, prompt, ratios, {})
        case Retain():
            return read_again(lm, prompt, {}, variant.plan(lm))
        case Select():
            return selected(lm, prompt, variant.p)
        case GemFilter():
            places = choose(lm, prompt, variant)
            tokens, looked = slow_answer(lm, [prompt[i] for i in places], STEPS)
            return tokens, np.array([*places, *range(len(prompt), 999)])[looked]
    with variant.attached(lm):
        return slow_answer(lm, prompt, STEPS)


@two_families
@pytest.mark.parametrize("variant", [
    MsPoe(**WIDE), MsPoe(**WIDE, order="position_aware"), SHARE, Select(filter_layer=1, p=0.6),
    GemFilter(filter_layer=1, tokens=60), Extended(factor=4, trained=64, layers="all")],
    ids=lambda v: f"{v.kind} {getattr(v, 'order', '')}")
def test_same_tokens_and_rows_as_by_hand(lm, variant):
    """Of cases that are read side by side, with what they share read once, or one by one."""
    cases = NiahBuilder(lm, load_haystacks()[:1]).grid(load_needles()[:1], (160, 200), (0.0, 1.0))
    how = {"max_new_tokens": STEPS, "stop_ids": set()}
    with variant.attached(lm) as model:
        found = [*batched(lm, cases, **how)] if model.batched else \
            [*one_by_one(cases, lambda ids: model.watch(ids, **how))]
        if model.batched:  # one by one is the same
            alone = model.watch(found[-1][0].input_ids, **how)
            np.testing.assert_array_equal(alone.positions, found[-1][1].positions)
    assert lm.model.config._attn_implementation == "sdpa" and len(found) == 4
    changed = 0
    for case, answer, _ in found[:1] + found[-1:]:
        tokens, looked = expected(lm, variant, case.input_ids)
        assert answer.tokens.tolist() == tokens
        np.testing.assert_array_equal(answer.positions, looked)
        changed += (slow_answer(lm, case.input_ids, STEPS)[1] != looked).sum()
    assert changed > 0


GRID = DetectConfig(lengths=(160,), depths=even_depths(2), needles=1, max_new_tokens=20)


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-olmo3"])
def test_variants_that_change_nothing_score_as_plain_detection(name):
    lm = load_model(name)
    plain, table = run_cases(lm, GRID)
    assert table["success"].any() and plain.max() > 0.5
    for variant in (MsPoe(s_min=1, s_max=1, first_layer=0),
                    MsPoe(s_min=1, s_max=1, first_layer=0, order="position_aware"),
                    Share(threshold=0, prompts=1, tokens=200), Select(filter_layer=1, p=1),
                    GemFilter(filter_layer=1, tokens=999), Extended(method="ntk", factor=1)):
        with variant.attached(lm) as model:
            runs, same = run_cases(lm, GRID, watch=None if model.batched else model.watch)
        np.testing.assert_array_equal(runs, plain)
        assert same["response"].equals(table["response"])
