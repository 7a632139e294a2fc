"""Answers in a batch whose rows come and go are those that each prompt gets alone."""

from itertools import takewhile
from types import SimpleNamespace

import pytest
import torch

from rmutils.core.errors import UserError
from rmutils.corpora.niah import load_haystacks
from rmutils.models.engine.generation import _choose, generate
from tests.conftest import two_families


@pytest.fixture
def prompts(lm):
    """Twelve prompts of 1 to 70 tokens, the longest longer than Olmo 3's window of 24."""
    ids = lm.tokenizer(load_haystacks()[0].text[:4000])["input_ids"]
    lengths = 5, 1, 70, 33, 8, 40, 2, 64, 20, 9, 50, 3
    return [ids[7 * i : 7 * i + n] for i, n in enumerate(lengths)]


@torch.inference_mode()
def slowly(lm, prompt, count, choose):
    """The whole text is read anew for each token."""
    said = []
    while len(said) < count:
        said.append(choose(lm.model(torch.tensor([[*prompt, *said]])).logits[0, -1], len(said)))
    return said


def sampled(seed, temperature, top_p, count):
    """One uniform number per token; the tokens from the most probable on, until top_p is full."""
    numbers = torch.rand(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    def choose(logits, t):
        odds = (logits / temperature).softmax(-1).double().tolist()
        kept, total = set(), 0.0
        for token in sorted(range(len(odds)), key=lambda token: -odds[token]):
            if total >= top_p:
                break
            kept.add(token)
            total += odds[token]
        rest = numbers[t].item() * sum(odds[token] for token in kept)
        for token in sorted(kept):
            rest -= odds[token]
            if rest < 0:
                return token
        return max(kept)

    return choose


@two_families
def test_greedy_answers_are_those_of_slow_reading(lm, prompts):
    greedy = [slowly(lm, p, 20, lambda logits, t: logits.argmax().item()) for p in prompts]
    stop_ids = {greedy[0][3], greedy[2][10], greedy[4][0]}
    expected = [[*takewhile(lambda token: token not in stop_ids, said)] for said in greedy]
    assert len({*map(len, expected)}) > 2 and [] in expected
    for batch_tokens in (1, 400, 100_000):
        told = {}
        found = generate(lm, prompts, max_new_tokens=20, stop_ids=stop_ids,
                         batch_tokens=batch_tokens,
                         done=lambda i, tokens, told=told: told.update({i: tokens}))
        assert found == expected and told == dict(enumerate(expected))


@two_families
@pytest.mark.parametrize(("temperature", "top_p"), [(0.6, 1.0), (1.5, 0.5)])
def test_sampled_answers_depend_on_prompt_and_seed_only(lm, prompts, temperature, top_p):
    lm.model.double()  # in float32 one number in some thousands falls between two roundings
    seeds = [100 + i for i in range(len(prompts))]
    expected = [slowly(lm, p, 12, sampled(seed, temperature, top_p, 12))
                for p, seed in zip(prompts, seeds, strict=True)]
    options = {"max_new_tokens": 12, "temperature": temperature, "top_p": top_p, "stop_ids": ()}
    assert generate(lm, prompts, seeds=seeds, **options) == expected
    back = generate(lm, prompts[::-1], seeds=seeds[::-1], batch_tokens=200, **options)
    assert back[::-1] == expected
    other = generate(lm, prompts, seeds=[seed + 1 for seed in seeds], **options)
    assert sum(a == b for a, b in zip(other, expected, strict=True)) < 3


def test_sampled_tokens_come_as_often_as_they_are_probable(llama):
    """4,000 seeds; the share of each token within four standard errors of its probability."""
    prompt = [40, 41, 42]
    with torch.inference_mode():
        odds = llama.model(torch.tensor([prompt])).logits[0, -1].softmax(-1)
    said = generate(llama, [prompt] * 4000, max_new_tokens=1, temperature=1.0, stop_ids=(),
                    seeds=range(4000))
    shares = torch.bincount(torch.tensor(said)[:, 0], minlength=len(odds)) / 4000
    assert ((shares - odds).abs() <= 4 * (odds * (1 - odds) / 4000).sqrt() + 1e-3).all()
    assert odds.max() > 0.02


def test_a_number_that_rounds_to_one_draws_a_token():
    """The last one that is probable at all."""
    logits = torch.zeros(2, 512)
    logits[1, 300:] = -torch.inf
    rows = [SimpleNamespace(uniforms=[1 - 2**-26], said=[], room=1)] * 2
    assert _choose(logits, rows, temperature=1.0, top_p=1.0) == [511, 299]


def test_longer_than_the_room_that_is_made_at_once(llama):
    prompt = [40, 41, 42]
    expected = slowly(llama, prompt, 150, lambda logits, t: logits.argmax().item())
    assert generate(llama, [prompt, [7]], max_new_tokens=150, stop_ids=())[0] == expected


def test_no_token_at_all_is_refused(llama):
    with pytest.raises(UserError, match="max_new_tokens is 0"):
        generate(llama, [[1, 2]], max_new_tokens=0)
