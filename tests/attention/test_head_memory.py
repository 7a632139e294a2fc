"""Memory by heads against a full cache with an additive mask; and the bytes really fall."""

import math

import pytest
import torch
from transformers import DynamicCache

from rmutils import load_model, memory_by_heads
from rmutils.attention.head_memory import SLIDING, key_heads_of
from rmutils.attention.streaming import Streaming
from rmutils.core.errors import UserError
from tests.attention.by_hand import heads_by_hand
from tests.conftest import make_lm, two_families

TEXT = tuple(range(7, 57))
PROMPT = 40
HEADS = [(0, 1), (1, 0), (1, 3), (3, 2)]
SINKS, RECENT = 3, 6
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def masked(lm, text=TEXT, read=PROMPT - 1):
    """Logits of a text whose tokens after the first ones see what is kept: all keys are there,
    and minus infinity is added to those that were evicted."""
    whole = {(layer, head // 2) for layer, head in HEADS}
    types = getattr(lm.model.config, "layer_types", None) or [""] * lm.shape[0]

    def evicted(layer, head, scores):
        for q in range(read, len(text)):
            for k in range(SINKS, q - RECENT + 1):
                if (layer, head // 2) not in whole and types[layer] != SLIDING:
                    scores[q, k] = -math.inf
        return scores

    with torch.inference_mode(), heads_by_hand(lm, evicted):
        return lm.model(torch.tensor([text])).logits[0]


@two_families
@pytest.mark.parametrize("at_once", [1, 4, 11])
def test_steps_see_what_a_mask_leaves(lm, at_once):
    """Also where several tokens come at once."""
    expected = masked(lm)
    with torch.inference_mode(), memory_by_heads(
            lm, HEADS, sinks=SINKS, recent=RECENT) as read:
        cache = read(TEXT[:PROMPT])
        for start in range(PROMPT - 1, len(TEXT), at_once):
            part = TEXT[start : start + at_once]
            logits = lm.model(torch.tensor([part]), past_key_values=cache).logits[0]
            torch.testing.assert_close(logits, expected[start : start + len(part)], **CLOSE)
    assert cache.get_seq_length() == len(TEXT)


def test_an_answer_is_that_of_the_mask_and_the_model_is_as_before(llama):
    prompt = TEXT[:PROMPT]
    with torch.inference_mode():
        before = llama.model(torch.tensor([TEXT])).logits
        with memory_by_heads(llama, HEADS, sinks=SINKS, recent=RECENT) as read:
            said = llama.model.generate(
                torch.tensor([prompt]), past_key_values=read(prompt), max_new_tokens=5,
                do_sample=False, eos_token_id=None, pad_token_id=0)[0, PROMPT:].tolist()
        assert torch.equal(llama.model(torch.tensor([TEXT])).logits, before)
    assert said == masked(llama, (*prompt, *said))[PROMPT - 1 : -1].argmax(-1).tolist()


def test_bytes_fall_to_what_is_kept(llama):
    """4 layers of 2 key heads of size 8, 39 tokens, float32: 3 key heads keep 39, 5 keep 9."""
    assert key_heads_of(llama, HEADS) == {0: [0], 1: [0, 1], 2: [], 3: [1]}
    with memory_by_heads(llama, HEADS, sinks=SINKS, recent=RECENT) as read:
        cache = read(TEXT[:PROMPT])
    token = 2 * 8 * 4
    assert cache.size == token * (4 * 39 + 4 * 9)
    assert cache.share == pytest.approx((4 * 39 + 4 * 9) / (8 * 39))
    stored = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
              for layer in cache.layers for part in layer.parts
              for tensor in (part.whole, part.few) if tensor.numel()}
    assert sum(stored.values()) == cache.size  # no view of something larger


@two_families
def test_all_heads_or_a_wide_window_change_nothing(lm):
    every = [(layer, head) for layer in range(4) for head in range(4)]
    with torch.inference_mode():
        plain = lm.model(torch.tensor([TEXT])).logits[0, PROMPT - 1 :]
        for heads, recent in ((every, 1), ([], 64)):
            with memory_by_heads(lm, heads, recent=recent) as read:
                found = lm.model(torch.tensor([TEXT[PROMPT - 1 :]]),
                                 past_key_values=read(TEXT[:PROMPT])).logits[0]
            torch.testing.assert_close(found, plain, **CLOSE)


def test_windows_in_all_layers_leave_nothing_to_spare(tokenizer):
    """Mistral's configuration names a window, and no types of layers."""
    lm = make_lm("mistral", tokenizer, sliding_window=20)
    with pytest.raises(UserError, match="every layer .* keeps a window of 20 tokens"), (
            memory_by_heads(lm, HEADS)):
        pass


def test_what_cannot_be_done_is_told(llama):
    for heads, change, said in (([(9, 0)], {}, "no head 9-0"), (HEADS, {"recent": 0}, "at least 1"),
                                (HEADS, {"sinks": -1}, "at least 0")):
        with pytest.raises(UserError, match=said), memory_by_heads(llama, heads, **change):
            pass
    with (Streaming().attached(llama), pytest.raises(UserError, match="'streaming'"),
          memory_by_heads(llama, HEADS)):
        pass
    with memory_by_heads(llama, HEADS, sinks=1, recent=4) as read, torch.inference_mode():
        cache = read(TEXT[:PROMPT])
        with pytest.raises(UserError, match="cannot be brought back"):
            cache.crop(-1)
        mask = torch.ones(1, PROMPT, dtype=torch.long)
        mask[0, :3] = 0
        with pytest.raises(UserError, match="padding"):
            llama.model(torch.tensor([TEXT[PROMPT - 1 : PROMPT]]), past_key_values=cache,
                        attention_mask=mask, position_ids=torch.tensor([[PROMPT - 1]]))
        plain = llama.model(torch.tensor([TEXT]), past_key_values=DynamicCache())
        assert plain.logits.shape[1] == len(TEXT)  # other caches work as always


def test_a_trained_model_answers_with_part_of_its_memory():
    """All needles with all key heads, none with a window only."""
    lm = load_model("tiny-llama", device="cpu")
    prompt = lm.render("Ulel Branbeck lives in Oakmere. " + "The sun is warm. " * 40
                       + "Where does Ulel Branbeck live?")
    said = {}
    for name, heads in (("all", [(i, j) for i in range(4) for j in range(16)]), ("none", [])):
        with memory_by_heads(lm, heads, sinks=2, recent=12) as read:
            said[name] = lm.tokenizer.decode(lm.model.generate(
                torch.tensor([prompt]), past_key_values=read(prompt), max_new_tokens=14,
                do_sample=False)[0, len(prompt) :], skip_special_tokens=True)
    assert "Oakmere" in said["all"] and "Oakmere" not in said["none"]
