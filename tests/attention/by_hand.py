"""Attention head by head, of models with four heads and two key heads: what variants of it are
checked against."""

import copy
import sys
from contextlib import contextmanager, nullcontext

import torch
from transformers import AttentionInterface

from rmutils.attention.share_attention import sharing_heads
from rmutils.models.engine.generation import next_token_logits
from rmutils.models.engine.implementations import register, using


@contextmanager
def heads_by_hand(lm, change=lambda layer, head, scores: scores, *, sharing=(), ratios=None):
    """All weights are computed from scores that `change` may change, then those of sharing heads
    replaced by those of their essential heads. With `ratios`, of the heads of a layer, the model's
    own turning is switched off, and positions are divided by them before anything is turned.
    Yields where the newest row of each head looks hardest, by layer."""
    modeling, config, looked = sys.modules[type(lm.model).__module__], lm.model.config, {}

    def rope(rows, ratio, layer):
        base = config.rope_parameters  # of each kind of layer, where there are several
        base = base.get("rope_theta") or base[config.layer_types[layer]]["rope_theta"]
        angle = (torch.arange(len(rows)) / ratio)[:, None] / base ** (torch.arange(0, 8, 2) / 8)
        real, imaginary = rows.chunk(2, dim=-1)
        turned = torch.complex(real, imaginary) * torch.polar(torch.ones_like(angle), angle)
        return torch.cat([turned.real, turned.imag], dim=-1)

    def attention(module, query, key, value, mask, *, scaling, **kwargs):
        layer, size, weights = module.layer_idx, query.shape[2], []
        seen = torch.ones(size, size).tril().bool() if mask is None else mask[0, 0]
        for h in range(4):
            q, k = query[0, h], key[0, h // 2]
            if ratios is not None:
                ratio = ratios.get(layer, [1, 1, 1, 1])[h]
                q, k = rope(q, ratio, layer), rope(k, ratio, layer)
            scores = change(layer, h, q @ k.T * scaling)
            weights.append(scores.masked_fill(~seen, -torch.inf).softmax(-1))
        for essential, others in dict(sharing).get(layer, {}).items():
            for other in others:
                weights[other] = weights[essential]
        looked[layer] = [row.tolist().index(max(row.tolist())) for row in (w[-1] for w in weights)]
        return torch.stack([w @ value[0, h // 2] for h, w in enumerate(weights)], dim=1)[None], None

    register("by_hand", attention)
    turning = modeling.apply_rotary_pos_emb
    try:
        if ratios is not None:
            modeling.apply_rotary_pos_emb = lambda q, k, *args, **kwargs: (q, k)
        with using(lm.model, "by_hand"):
            yield looked
    finally:
        modeling.apply_rotary_pos_emb = turning
        AttentionInterface._global_mapping.pop("by_hand")


@torch.inference_mode()
def expects(lm, prompt, said):
    """Whether each token is what the model expects most, which reads the whole text at once."""
    logits = next_token_logits(lm, [*prompt, *said])[len(prompt) - 1 : -1]
    return len(said) > 0 and logits.argmax(-1).tolist() == [*said]


@torch.inference_mode()
def in_two(lm, ids, p, sharing=None):
    """Select-Attention behind layer 1: all tokens through layers 0 and 1, the chosen through the
    rest, which is a model of its own, in which heads may share. Logits of the newest token, the
    chosen tokens, and where each head looks hardest, where none shares."""
    with using(lm.model, "eager"):
        whole = lm.model(torch.tensor([ids]), output_hidden_states=True, output_attentions=True,
                         use_cache=False)
    scores = whole.attentions[1][0, :, -1].mean(0)
    order, chosen, total = scores.argsort(descending=True).tolist(), [], 0.0
    while total < p and order:
        chosen.append(order.pop(0))
        total += float(scores[chosen[-1]])
    chosen = torch.tensor(sorted({*chosen, len(ids) - 1}))
    rest = copy.deepcopy(lm.model)
    rest.base_model.layers, rest.config.num_hidden_layers = rest.base_model.layers[2:], 2
    if getattr(rest.config, "layer_types", None):
        rest.config.layer_types = rest.config.layer_types[2:]
    gap = chosen[:, None] - chosen
    masks = {kind: torch.where((gap >= 0) & (gap < width), 0.0, -1e9)[None, None]
             for kind, width in (("full_attention", 9999), ("sliding_attention", 24))}
    if sharing:  # Share-Attention takes boolean masks
        masks = {kind: mask == 0 for kind, mask in masks.items()}
    else:
        rest.set_attn_implementation("eager")
    with sharing_heads(rest, sharing) if sharing else nullcontext():
        later = rest(inputs_embeds=whole.hidden_states[2][:, chosen], position_ids=chosen[None],
                     attention_mask=masks if lm.family in ("olmo3", "gemma3_text", "qwen3")
                     else masks["full_attention"], output_attentions=not sharing, use_cache=False)
    looked = sharing or [a[0, :, -1].argmax(-1).tolist() for a in whole.attentions[:2]] + [
        chosen[a[0, :, -1].argmax(-1)].tolist() for a in later.attentions]
    return later.logits[0, -1], chosen, looked
