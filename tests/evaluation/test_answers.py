"""Answers and likelihoods against a model that is asked one by one."""

import math
import warnings

import pytest
import torch
from transformers import GenerationConfig

from rmutils.corpora.niah import load_haystacks
from rmutils.corpora.world.knowledge import instructions
from rmutils.evaluation import answers
from rmutils.evaluation.answers import answer, next_words_right, repetition_rate, speak, surprise
from rmutils.heads import mask_heads
from tests.conftest import two_families

STEPS = 12


@pytest.fixture
def prompts(tokenizer) -> list[list[int]]:
    """Prompts of 1 to 200 tokens, longer and shorter than the windows of Olmo 3."""
    ids = tokenizer(load_haystacks()[0].text[:4000])["input_ids"]
    return [ids[start : start + n] for start, n in
            ((0, 60), (50, 3), (9, 200), (120, 25), (70, 1), (300, 60), (31, 110))]


@torch.inference_mode()
def greedy(lm, prompt: list[int]) -> list[int]:
    """Arg-max of the whole sequence again and again: no batch, no mask, no cache."""
    ids = list(prompt)
    while len(ids) < len(prompt) + STEPS:
        token = int(lm.model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax())
        if token in lm.stop_ids:
            break
        ids.append(token)
    return ids[len(prompt):]


def text(lm, tokens: list[int]) -> str:
    return lm.tokenizer.decode(tokens, skip_special_tokens=True).strip()


@two_families
@pytest.mark.parametrize("batch_tokens", [1, 300, 100_000])
def test_same_as_one_by_one(lm, prompts, batch_tokens):
    expected = [text(lm, greedy(lm, prompt)) for prompt in prompts]
    assert len(set(expected)) > 3
    found = answer(lm, prompts, max_new_tokens=STEPS, batch_tokens=batch_tokens)
    assert found == expected
    assert answer(lm, prompts[::-1], max_new_tokens=STEPS,
                  batch_tokens=batch_tokens) == expected[::-1]


def test_answers_end_at_their_stop(llama, prompts):
    """A stop token that is no special token: only the cut keeps it out of the text."""
    free = [greedy(llama, prompt) for prompt in prompts]
    stop = free[0][2]
    llama.model.generation_config.eos_token_id = [llama.tokenizer.eos_token_id, stop]
    cut = [tokens[: tokens.index(stop)] if stop in tokens else tokens for tokens in free]
    assert len({len(tokens) for tokens in cut}) > 1
    assert answer(llama, prompts, max_new_tokens=STEPS) == [text(llama, t) for t in cut]


def test_settings_of_the_model_are_left_out(llama, prompts):
    expected = answer(llama, prompts, max_new_tokens=STEPS)
    llama.model.generation_config = GenerationConfig(
        do_sample=True, temperature=0.6, top_p=0.5, top_k=3, repetition_penalty=5.0,
        eos_token_id=llama.tokenizer.eos_token_id)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert answer(llama, prompts, max_new_tokens=STEPS) == expected


@pytest.mark.parametrize("thinking", [False, True])
def test_render_switches_thinking(llama, tokenizer, monkeypatch, thinking):
    monkeypatch.setattr(tokenizer, "chat_template",
                        "{{ messages[0]['content'] }} {{ enable_thinking }}")
    assert llama.tokenizer.decode(llama.render("Go.", thinking=thinking)) == f"Go. {thinking}"


PROMPTS = [list(range(20, 60)), [9, 8, 7], [100, 200]]
ANSWERS = [[5, 300, 41, 41], [], [77]]


@pytest.mark.parametrize(("text", "rate"), [
    ("", 0), ("One two three.", 0), ("a b c d e f g", 0),
    ("a b c d a b c d", 1 / 5),  # 5 spans: abcd bcda cdab dabc abcd
    ("No, no no NO no no", 1 / 4),  # a comma is a word; only the last of 4 spans comes again
    ("A b, c. a b, c.", 2 / 7),
    ("!" * 10, 6 / 7), ("der Bär der Bär der Bär", 1 / 3),
])
def test_repetition_by_hand(text, rate):
    assert repetition_rate(text) == pytest.approx(rate)


def test_spans_of_other_lengths():
    assert repetition_rate("a a a a", words=1) == 3 / 4
    assert repetition_rate("a a a a", words=2) == pytest.approx(2 / 3)


@torch.inference_mode()
def odds(lm, ids: list[int]) -> list[float]:
    """Probabilities of the token after `ids`."""
    return lm.model(torch.tensor([ids])).logits[0, -1].double().softmax(-1).tolist()


@two_families
def test_surprise_is_the_slow_one(lm):
    """The end counts if the answer was not cut; any stop token would have been an end."""
    lm.model.generation_config.eos_token_id = [lm.tokenizer.eos_token_id, 50, 51]
    for cut in (2, 100):
        expected = []
        for prompt, said in zip(PROMPTS, ANSWERS, strict=True):
            told = [odds(lm, [*prompt, *said[:i]])[token] for i, token in enumerate(said)]
            if len(said) < cut:
                after = odds(lm, [*prompt, *said])
                told.append(sum(after[i] for i in lm.stop_ids))
            expected.append(-sum(map(math.log, told)) / len(told))
        assert surprise(lm, PROMPTS, ANSWERS, cut) == pytest.approx(expected, rel=1e-4)


@two_families
def test_next_words_are_the_slow_ones(lm):
    text = list(range(30, 50))
    for known in (1, 7):  # greedy tokens are put into the text, so that some are next_words_right
        for i in (9, 13):
            text[i] = max(enumerate(odds(lm, text[:i])), key=lambda pair: pair[1])[0]
        right = [odds(lm, text[:i])[text[i]] == max(odds(lm, text[:i]))
                 for i in range(known, len(text))]
        assert 0 < sum(right) < len(right)
        share = next_words_right(lm, [text, text[:9]], known)[0]
        assert share == pytest.approx(sum(right) / len(right))


def test_the_masked_model_speaks_and_the_whole_one_judges(llama, monkeypatch):
    samples, heads = instructions(4, "test", "held_out"), [(0, 0), (1, 2), (3, 3)]
    options = {"max_new_tokens": 8, "temperature": 0.6, "seed": 3}
    weight = llama.model.model.layers[1].self_attn.o_proj.weight
    before, judged = weight.clone(), []
    monkeypatch.setattr(answers, "surprise", lambda lm, prompts, said, cut: judged.append(
        (torch.equal(weight, before), said)) or [0.0] * len(said))
    whole, masked = (speak(llama, h, samples, **options) for h in ([], heads))
    assert not whole["response"].equals(masked["response"])
    with mask_heads(llama, heads):
        assert speak(llama, [], samples, **options)["response"].equals(masked["response"])
    assert [by_whole for by_whole, _ in judged] == [True, True, False]
    for table, (_, said) in zip((whole, masked), judged, strict=False):
        assert table["tokens"].tolist() == list(map(len, said))
        assert (table["finished"] == [len(tokens) < 8 for tokens in said]).all()
