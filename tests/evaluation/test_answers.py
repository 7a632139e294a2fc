"""Answers are those of a plain arg-max loop, whatever stands beside them in the batch."""

import warnings

import pytest
import torch
from transformers import GenerationConfig

from rmutils.corpora.niah import load_haystacks
from rmutils.evaluation.answers import answer
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
