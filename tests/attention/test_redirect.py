"""Redirected heads against a slow loop, in one pass, in batches and from caches."""

import math

import pytest
import torch
from transformers import DynamicCache

from rmutils import find_span, generate, redirect
from rmutils.attention.decoding import capturing
from rmutils.attention.redirect import Span, redirect_rows
from rmutils.attention.streaming import Streaming
from rmutils.core.errors import UserError
from rmutils.heads.masking import mask_heads
from rmutils.models.engine.caches import Trunk, view_of
from tests.attention.by_hand import heads_by_hand
from tests.conftest import two_families

TEXT = tuple(range(7, 37))
"""A prompt of 20 tokens and an answer of 10; the window of sliding layers is 24."""
SPAN = Span(TEXT[:20], 4, 9)
HEADS = [(0, 1), (1, 0), (1, 3), (3, 2)]
STRENGTH = 3.0
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def slowly(lm, text=TEXT, span=SPAN, heads=HEADS, strength=STRENGTH):
    """Logits of a text, where each weight that changes is changed by itself."""
    def change(layer, head, scores):
        for q in range(len(span.prompt) - 1, len(text)):
            for k in range(span.start, span.end):
                scores[q, k] += strength * ((layer, head) in heads)
        return scores

    with torch.inference_mode(), heads_by_hand(lm, change):
        return lm.model(torch.tensor([text])).logits[0]


def in_one_pass(lm, text=TEXT, **kwargs):
    with torch.inference_mode():
        return lm.model(torch.tensor([text]), **kwargs).logits[0]


@two_families
def test_the_heads_look_at_the_passage_as_much_more(lm):
    expected, plain = slowly(lm), in_one_pass(lm)
    with redirect(lm, HEADS, SPAN, STRENGTH):
        found = in_one_pass(lm)
    torch.testing.assert_close(found, expected, **CLOSE)
    torch.testing.assert_close(found[:19], plain[:19], **CLOSE)  # while the prompt is read
    assert (found[19:] - plain[19:]).abs().max() > 0.01
    torch.testing.assert_close(in_one_pass(lm), plain, rtol=0, atol=0)


@two_families
def test_steps_from_a_cache_are_the_whole_pass(lm):
    expected = slowly(lm)
    whole = DynamicCache()  # of transformers itself, told of no window
    own = DynamicCache(config=lm.model.config)
    for cache, first in ((whole, 20), (own, 20), (view_of(Trunk(lm.model, TEXT[:15]).cache), 15),
                         (view_of(Trunk(lm.model, TEXT[:19]).cache), 19)):
        with torch.inference_mode(), redirect(lm, HEADS, SPAN, STRENGTH):
            if not cache.get_seq_length():
                lm.model(torch.tensor([TEXT[:first]]), past_key_values=cache)
            for i, token in enumerate(TEXT[first:], first):
                logits = lm.model(torch.tensor([[token]]), past_key_values=cache).logits[0, -1]
                torch.testing.assert_close(logits, expected[i], **CLOSE)


@two_families
def test_rows_of_a_padded_batch_are_single_runs(lm):
    short = (*range(60, 72), *range(90, 100))  # a prompt of 12
    spans = [SPAN, Span(short[:12], 0, 3)]
    biases = torch.zeros(2, *lm.shape)
    for head in HEADS:
        biases[0][head] = STRENGTH
    biases[1, 2, 1] = -1.5
    expected = [slowly(lm), slowly(lm, short, spans[1], [(2, 1)], -1.5)]
    pad = len(TEXT) - len(short)
    ids = torch.tensor([TEXT, (*[0] * pad, *short)])
    mask = torch.ones_like(ids)
    mask[1, :pad] = 0
    places = (mask.cumsum(1) - 1).clamp(0)
    with torch.inference_mode(), redirect_rows(lm, spans, biases):
        found = lm.model(ids, attention_mask=mask, position_ids=places).logits
        cache = DynamicCache()
        lm.model(ids[:, :18], attention_mask=mask[:, :18], position_ids=places[:, :18],
                 past_key_values=cache)
        cached = lm.model(ids[:, 18:], attention_mask=mask, position_ids=places[:, 18:],
                          past_key_values=cache).logits
    for row, start in ((0, 0), (1, pad)):
        torch.testing.assert_close(found[row, start:], expected[row], **CLOSE)
        torch.testing.assert_close(cached[row], expected[row][-12:], **CLOSE)


def test_greedy_answers_are_those_of_the_slow_loop(llama):
    prompt, strength = SPAN.prompt, 40.0
    with redirect(llama, HEADS, SPAN, strength):
        said, = generate(llama, [prompt], max_new_tokens=6, stop_ids=[])
        again = generate(llama, [prompt, prompt], max_new_tokens=6, stop_ids=[])
        own = llama.model.generate(torch.tensor([prompt]), max_new_tokens=6, do_sample=False,
                                   eos_token_id=None, pad_token_id=0)[0, len(prompt) :].tolist()
    wanted = slowly(llama, (*prompt, *said), strength=strength)[len(prompt) - 1 : -1].argmax(-1)
    assert said == own == wanted.tolist() and again == [said, said]
    assert said != generate(llama, [prompt], max_new_tokens=6, stop_ids=[])[0]


def test_heads_are_watched_while_they_are_redirected(llama):
    with redirect(llama, HEADS, SPAN, 60.0), capturing(llama.model) as recorder:
        in_one_pass(llama, recorder=recorder)
    looked = recorder.take()[0, :, :, 0]
    assert all(SPAN.start <= int(looked[head]) < SPAN.end for head in HEADS)


def test_a_strength_of_zero_changes_nothing_and_masks_go_together(llama):
    plain = in_one_pass(llama)
    with redirect(llama, HEADS, SPAN, 0):
        torch.testing.assert_close(in_one_pass(llama), plain, **CLOSE)
    with mask_heads(llama, HEADS):
        masked = in_one_pass(llama)
        with redirect(llama, HEADS, SPAN, STRENGTH):
            torch.testing.assert_close(in_one_pass(llama), masked, **CLOSE)


@pytest.mark.parametrize(("change", "said"), [
    ({"strength": math.nan}, "finite number"),
    ({"strength": math.inf}, "finite number"),
    ({"heads": [(9, 0)]}, "no head 9-0"),
    ({"heads": []}, "no heads"),
    ({"span": []}, "no span"),
    ({"span": (4, 9)}, "span"),
])
def test_what_cannot_be_done_is_told(llama, change, said):
    asked = {"heads": HEADS, "span": SPAN, "strength": STRENGTH} | change
    with pytest.raises(UserError, match=said), redirect(llama, **asked):
        pass


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (3, 3), (5, 4), (18, 21)])
def test_a_span_outside_its_prompt_is_refused(start, end):
    with pytest.raises(UserError, match="no passage of a prompt of 20 tokens"):
        Span(TEXT[:20], start, end)


def test_another_prompt_is_refused(llama):
    with redirect(llama, HEADS, SPAN, STRENGTH), pytest.raises(UserError, match="another prompt"):
        in_one_pass(llama, TEXT[::-1])
    padded = torch.tensor([(0, 0, *TEXT)])
    with (redirect(llama, HEADS, SPAN, STRENGTH), torch.inference_mode(),
          pytest.raises(UserError, match="position_ids")):
        llama.model(padded, attention_mask=(padded > 0).long())
    with redirect(llama, HEADS, [SPAN, SPAN], STRENGTH), pytest.raises(UserError, match="2 spans"):
        in_one_pass(llama)
    in_one_pass(llama)  # the model is as before


def test_another_attention_is_not_replaced(llama):
    with (Streaming().attached(llama), pytest.raises(UserError, match="'streaming'"),
          redirect(llama, HEADS, SPAN, STRENGTH)):
        pass
    with (redirect(llama, HEADS, SPAN, STRENGTH), pytest.raises(UserError, match="at a time"),
          redirect(llama, HEADS, SPAN, STRENGTH)):
        pass


@two_families
def test_a_passage_is_found_in_a_prompt(lm):
    words = "The key is in the jar."
    prompt = f"Once upon a time. {words} Where is the key?"
    span = find_span(lm, prompt, words)
    assert list(span.prompt) == lm.render(prompt)
    assert lm.tokenizer.decode(span.prompt[span.start : span.end]).strip() == words
    for wrong, said in (("The key is lost.", "nowhere"), ("the", "2 times"), (" ", "nowhere")):
        with pytest.raises(UserError, match=said):
            find_span(lm, prompt, wrong)
