"""What heads add to logits, by family, against finite differences: a head's output is made a little
larger, and what comes to the logits is watched, with all that is computed later left as it was."""

from contextlib import ExitStack

import numpy as np
import pytest
import torch

from rmutils import DetectConfig
from rmutils.core.errors import UserError
from rmutils.heads.detection import build_cases
from rmutils.heads.residual import residual_paths
from rmutils.heads.score_kinds import SCORES
from tests.architectures import make

GRID = DetectConfig(lengths=(150,), depths=(0.5,), needles=1, max_new_tokens=4, score="dla")
STEP = 2e-3


def added(model, ids, row, token, layer, head):
    """d logit / d log of the head's output, float64: by central differences in the layer itself,
    whose attention's norm keeps its root mean square; what comes later does not see the change."""
    block = model.base_model.layers[layer]
    attention = block.self_attn
    projection = getattr(attention, "o_proj", None) or attention.out_proj
    size, kept = projection.in_features // model.config.num_attention_heads, {}

    def freeze(module, given, output):
        """Of each row the factor by which the norm scales it, as it is without the change."""
        share = given[0].pow(2).mean(-1, keepdim=True).sqrt()
        kept.setdefault(module, share)
        return output * share / kept[module]

    def run(scale):
        def scaled(module, given):
            other = given[0].clone()
            other[0, row, head * size : (head + 1) * size] *= scale
            return (other,)

        def silent(module, given, output):
            zero = [part * 0 if isinstance(part, torch.Tensor) else part for part in (
                output if isinstance(output, tuple) else (output,))]
            return tuple(zero) if isinstance(output, tuple) else zero[0]

        seen = {}
        with ExitStack() as hooks:
            hooks.callback(projection.register_forward_pre_hook(scaled).remove)
            if after(model.config.model_type):
                hooks.callback(block.post_attention_layernorm.register_forward_hook(freeze).remove)
            for name in ("mlp", "feed_forward", "mamba"):
                if hasattr(block, name):  # beside or behind: no part of the head's own
                    hooks.callback(getattr(block, name).register_forward_hook(silent).remove)
            hooks.callback(block.register_forward_hook(lambda *args: seen.setdefault(
                "out", args[2][0] if isinstance(args[2], tuple) else args[2])).remove)
            model(ids, use_cache=False)
        return seen["out"][0, row]

    run(1.0)
    slope = (run(1 + STEP) - run(1 - STEP)) / (2 * STEP)
    return float(slope @ model.get_output_embeddings().weight[token]) * last(model.config)


def after(family):
    """Families that norm what attention writes, by their papers and modules."""
    return family in ("olmo2", "olmo3", "gemma2", "gemma3_text", "exaone4")


def last(config):
    """The factor on logits, as the families' configurations name it."""
    if config.model_type in ("granite", "granitemoehybrid"):
        return 1 / config.logits_scaling
    return getattr(config, "logit_scale", None) or getattr(config, "lm_head_multiplier", 1.0)


@pytest.mark.parametrize("name", [
    "Llama", "Qwen2", "Qwen3", "Olmo2", "Olmo3", "Gemma", "Gemma2", "Gemma3Text", "Granite",
    "Cohere", "Exaone4", "GptOss"])
def test_contributions_are_finite_differences(name, tokenizer):
    lm = make(name, tokenizer)
    kind = SCORES["dla"](lm, GRID)
    (case, answer, _), = kind.answers(build_cases(lm, GRID), None)
    model = lm.model.double()
    step = answer.steps[-1]
    ids = torch.tensor([[*case.input_ids, *answer.tokens.tolist()[:step]]])
    row, token = ids.shape[1] - 1, int(answer.tokens[step])
    with torch.no_grad():
        slow = [added(model, ids, row, token, layer, head)
                for layer in lm.layers for head in range(lm.shape[1])]
    found = answer.from_all[-1][lm.layers].ravel()
    np.testing.assert_allclose(found, slow, rtol=2e-3, atol=2e-3 * np.abs(slow).max())


@pytest.mark.parametrize("name", ["Gemma2", "GptOss"])
@pytest.mark.parametrize("score", ["copy", "attention", "locos", "anchor", "query", "patching"])
def test_capped_scores_and_sinks_are_watched_by_every_kind(name, score, tokenizer):
    """What a head sees is what transformers' own weights say, without the share of a sink."""
    lm = make(name, tokenizer)
    kind = SCORES[score](lm, GRID.changed({"score": score}))
    (case, answer, _), = kind.answers(build_cases(lm, GRID), None)
    found = kind.score(case, answer)
    assert found.shape == lm.shape and np.isfinite(found).all()
    if score not in ("attention", "anchor"):
        return
    text = torch.tensor([[*case.input_ids, *answer.tokens[:-1]]])
    weights = torch.stack(lm.model(text, output_attentions=True).attentions)[:, 0]
    (start, end), first = case.needle_span, len(case.input_ids) - 1
    rows = weights[:, :, [first + step for step in answer.steps]]
    np.testing.assert_allclose(answer.attention, rows[..., start:end].sum(-1).detach().permute(
        2, 0, 1), atol=1e-5)
    assert name != "GptOss" or (rows.sum(-1) < 1 - 1e-3).any()
    np.testing.assert_allclose(answer.anchor, weights[:, :, first - 7 : first + 1, start:end].sum(
        -1).detach().permute(2, 0, 1), atol=1e-5)


def test_scores_of_a_cap_or_sinks_that_sdpa_would_drop_are_refused(tokenizer):
    lm = make("Gemma2", tokenizer)
    lm.model.set_attn_implementation("sdpa")
    with pytest.raises(UserError, match="is not the plain one"):
        SCORES["dla"](lm, GRID)


@pytest.mark.parametrize("change", ["layer norm", "scaled stream"])
def test_what_else_stands_between_is_refused(change, tokenizer):
    lm = make("Olmo3" if change == "layer norm" else "Llama", tokenizer)
    layer = lm.model.model.layers[2]
    if change == "layer norm":  # which looks at more than the root mean square
        layer.post_attention_layernorm = torch.nn.LayerNorm(32)
    else:
        layer.register_forward_hook(lambda module, given, output: 0.5 * output)
    with pytest.raises(UserError, match="layer 2, more than a norm and a factor"):
        residual_paths(lm.model)
