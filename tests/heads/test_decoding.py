"""Answers that end at their stop token, whatever stands beside them in the batch."""

import numpy as np
import pytest

from rmutils.attention.decoding import ArgMaxRecorder, capturing, decode
from rmutils.corpora.haystacks import load_haystacks
from rmutils.models.engine.caches import Trunk

STEPS = 8


@pytest.fixture
def prompts(llama):
    """Four prompts of different lengths."""
    ids = llama.tokenizer(load_haystacks()[0].text[:2000])["input_ids"]
    return [ids[:120], ids[50:110], ids[200:300], ids[7:150]]


def answer(lm, prompts, stop_ids, recorder_type=ArgMaxRecorder):
    trunk = Trunk(lm.model, prompts[0][:40])
    with capturing(lm.model):
        return decode(lm.model, recorder_type(), prompts, [trunk.read(p) for p in prompts],
                      max_new_tokens=STEPS, stop_ids=stop_ids)


def test_answers_are_cut_at_their_own_stop(llama, prompts):
    """Some end early, the others go on as if alone."""
    free = answer(llama, prompts, set())
    stop = int(free[1].tokens[2])
    cut = answer(llama, prompts, {stop})
    lengths = []
    for full, short in zip(free, cut, strict=True):
        tokens = full.tokens.tolist()
        end = tokens.index(stop) if stop in tokens else STEPS
        assert short.tokens.tolist() == tokens[:end]
        np.testing.assert_array_equal(short.positions, full.positions[:end])
        lengths.append(end)
    assert len(set(lengths)) > 1 and lengths[1] <= 2


def test_no_step_after_all_have_stopped(llama, prompts):
    """An answer whose first token is the stop token is empty, and costs one step."""
    steps = []

    class Counting(ArgMaxRecorder):
        def take(self):
            steps.append(1)
            return super().take()

    first = {int(a.tokens[0]) for a in answer(llama, prompts, set())}
    empty = answer(llama, prompts, first, Counting)
    assert [a.tokens.size for a in empty] == [0] * 4 and len(steps) == 1
    assert empty[0].positions.shape == (0, 4, 4)


def test_trunk_of_nothing_in_common(llama, prompts):
    """A prompt that shares no token with the trunk is read from its start."""
    trunk = Trunk(llama.model, [1, 1, 1])
    fresh = Trunk(llama.model, prompts[2][:60])
    for one, other in zip(trunk.read(prompts[2]).layers, fresh.read(prompts[2]).layers,
                          strict=True):
        assert one.keys.shape == other.keys.shape == (1, 2, len(prompts[2]) - 1, 8)
        np.testing.assert_allclose(one.keys, other.keys, atol=1e-4)
