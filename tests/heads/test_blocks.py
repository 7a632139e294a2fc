"""Heads are blocks of columns of a plain output projection, or the model is refused everywhere."""

import pytest
import torch
from peft import LoraConfig, get_peft_model

from rmutils import DetectConfig, detect, mask_heads
from rmutils.core.errors import UserError
from rmutils.heads.masking import scaled_outputs
from rmutils.models.engine.contrast import Contrast
from rmutils.models.head_blocks import projections
from rmutils.models.products import use_onednn
from tests.architectures import OWN, make

GRID = DetectConfig(lengths=(150,), depths=(0.5,), needles=1, max_new_tokens=2)
USES = {
    "mask": lambda lm: mask_heads(lm, [(1, 2)]).__enter__(),
    "mask, mean": lambda lm: mask_heads(lm, [(1, 2)], "mean").__enter__(),
    "scale": lambda lm: scaled_outputs(lm, [(1, 2)], 0.5).__enter__(),
    "contrast": lambda lm: Contrast([(1, 2)]).masking(lm.model).__enter__(),
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
