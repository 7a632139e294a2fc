"""Shared beginnings are read once, and what is written is the same as without sharing."""

import itertools
import random

import pytest
import torch

from rmutils.corpora.niah import load_haystacks
from rmutils.models.engine import caches, generation
from rmutils.models.engine.caches import WORTH, Trunk, common_prefix, families
from rmutils.models.engine.generation import generate
from tests.conftest import two_families


def ids_of(lm, start, count):
    return lm.tokenizer(load_haystacks()[0].text[start : start + 8 * count])["input_ids"][:count]


@pytest.fixture
def prompts(lm):
    """Demonstrations shared by all; three texts with three, four and one question; one stray."""
    demonstrations = ids_of(lm, 0, 90)
    found = [ids_of(lm, 9000, 30)]
    for i, (size, questions) in enumerate(((150, 3), (110, 4), (95, 1))):
        text = ids_of(lm, 2000 + 1500 * i, size)
        found += [[*demonstrations, *text, *ids_of(lm, 7000 + 40 * j, 2 + 5 * j)]
                  for j in range(questions)]
    return found


def read_tokens(model):
    """Tokens of every call of the model, as they come: (rows, columns)."""
    calls = []
    model.base_model.register_forward_pre_hook(
        lambda module, args, kwargs: calls.append(tuple(kwargs["input_ids"].shape)),
        with_kwargs=True)
    return calls


@two_families
def test_answers_are_those_without_sharing(lm, prompts):
    lm.model.double()  # in float32 near ties could fall to either side
    options = {"max_new_tokens": 12, "stop_ids": ()}
    alone = [generate(lm, [prompt], **options)[0] for prompt in prompts]
    for batch_tokens in (1, 1000, 100_000):
        assert generate(lm, prompts, batch_tokens=batch_tokens, **options) == alone
    assert generate(lm, prompts[::-1], batch_tokens=1000, **options) == alone[::-1]


def test_every_beginning_is_read_once(llama):
    texts = [ids_of(llama, 1500 * i, 200) for i in range(3)]
    prompts = [[*text, 5, 6, 7 + q] for q in range(4) for text in texts]
    calls = read_tokens(llama.model)
    generate(llama, prompts, max_new_tokens=1, stop_ids=())
    assert calls == [(1, 202)] * 3 + [(12, 1)]  # all but the last token, then all last ones


def test_demonstrations_are_read_once_for_all_texts(llama):
    """Also for a text with a single question."""
    demonstrations = ids_of(llama, 0, 150)
    texts = [ids_of(llama, 2000 + 1500 * i, 120 - 5 * i) for i in range(4)]
    prompts = [[*demonstrations, *text, *ids_of(llama, 8000 + 30 * q, 5)]
               for text in texts for q in range(3)][:-2]
    calls = read_tokens(llama.model)
    generate(llama, prompts, max_new_tokens=1, stop_ids=())
    assert sum(rows * columns for rows, columns in calls) < 150 + 4 * 120 + 10 * 8


def test_short_prompts_are_read_in_one_batch(llama):
    """What they share is not worth a reading of its own."""
    prompts = [[9] * 20 + ids_of(llama, 300 * i, 3 + i) for i in range(10)]
    calls = read_tokens(llama.model)
    generate(llama, prompts, max_new_tokens=1, stop_ids=())
    assert calls[0][0] == 10 and len(calls) == 2


def test_families_share_what_they_say():
    """On random trees of texts: a partition, with right counts; the longest prompt first."""
    rng = random.Random(0)
    for _ in range(40):
        roots = [[rng.randrange(50) for _ in range(rng.choice((10, 100, 300)))] for _ in range(4)]
        prompts = [[*rng.choice(roots), *(rng.randrange(50) for _ in range(rng.randint(1, 90)))]
                   for _ in range(14)]
        found = families(prompts)
        assert sorted(itertools.chain.from_iterable(group for group, _ in found)) == [*range(14)]
        lengths = [[len(prompts[i]) for i in group] for group, _ in found]
        assert all(sizes == sorted(sizes, reverse=True) for sizes in lengths)
        assert [sizes[0] for sizes in lengths] == sorted((s[0] for s in lengths), reverse=True)
        for group, shared in found:
            assert shared == 0 or shared >= WORTH and len(group) > 1
            for i in group:
                assert prompts[i][:shared] == prompts[group[0]][:shared]
                assert shared < len(prompts[i])
        together = {i: n for n, (group, _) in enumerate(found) for i in group}
        for a, b in itertools.combinations(range(14), 2):
            if common_prefix(prompts[a], prompts[b]) >= 300:  # only from the longest root
                assert together[a] == together[b]
    assert families([]) == [] and families([[1]]) == [([0], 0)]


def test_prompts_that_are_equal_or_begin_another(llama):
    long = ids_of(llama, 0, 120)
    prompts = [long, long[:100], long, long[:1], long[:99]]
    alone = [generate(llama, [p], max_new_tokens=6, stop_ids=())[0] for p in prompts]
    assert generate(llama, prompts, max_new_tokens=6, stop_ids=()) == alone


@two_families
def test_trunks_grow_from_others(lm):
    """The keys of a text are the same, however much of it another trunk had read."""
    text, other = ids_of(lm, 0, 100), ids_of(lm, 4000, 60)
    fresh = Trunk(lm.model, text)
    grown = Trunk(lm.model, text, Trunk(lm.model, [*text[:70], *other]))
    for a, b in zip(fresh.cache.layers, grown.cache.layers, strict=True):
        torch.testing.assert_close(a.keys, b.keys, rtol=0, atol=1e-4)
        torch.testing.assert_close(a.values, b.values, rtol=0, atol=1e-4)
    calls = read_tokens(lm.model)
    Trunk(lm.model, text, grown)
    Trunk(lm.model, [*text[:90], *other], grown)
    assert calls == [(1, 60)]


@two_families
def test_rows_of_a_trunk_are_their_own(lm):
    """Read in a batch, each prompt has the cache that it gets alone, of its own length."""
    text = ids_of(lm, 0, 100)
    prompts = [[*text[:n], *ids_of(lm, 3000 + 50 * n, k)] for n, k in ((100, 9), (80, 30), (100, 1),
                                                                      (90, 2))]
    trunk = Trunk(lm.model, text)
    for prompt, cache in zip(prompts, trunk.read_all(prompts), strict=True):
        alone = Trunk(lm.model, prompt[:-1]).cache
        assert cache.get_seq_length() == len(prompt) - 1
        for a, b in zip(cache.layers, alone.layers, strict=True):
            torch.testing.assert_close(a.keys, b.keys, rtol=0, atol=1e-4)
    assert trunk.cache.get_seq_length() == 100  # nothing was written into it
    assert generation.Trunk is caches.Trunk
