"""Where memory runs out in a batch, smaller ones give the same, and the user is told."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch

from rmutils.core.errors import UserError
from rmutils.corpora.niah import load_haystacks
from rmutils.evaluation.answers import log_probabilities
from rmutils.heads import DetectConfig, detect, detection
from rmutils.models.engine.generation import generate

GRID = DetectConfig(lengths=(200,), depths=(0.0, 0.3, 0.6, 0.9), needles=3, max_new_tokens=4)


def accelerator():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")


def processor():
    torch.empty(1 << 60, dtype=torch.uint8)


@contextmanager
def room_for(lm, rows: int, run_out=accelerator):
    """Memory for so many rows: with more, the error is raised in the middle of a pass."""
    def look(module, arguments, given):
        if len(given["hidden_states"] if "hidden_states" in given else arguments[0]) > rows:
            run_out()

    hook = lm.model.base_model.layers[2].register_forward_pre_hook(look, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


@pytest.fixture
def prompts(llama):
    ids = llama.tokenizer(load_haystacks()[0].text[:4000])["input_ids"]
    return [ids[7 * i: 7 * i + n] for i, n in enumerate((5, 1, 70, 33, 8, 40, 2, 64, 20))]


@pytest.mark.fault("out of memory", "in a batch of answers")
@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("run_out", [accelerator, processor])
def test_answers(llama, prompts, rows, run_out, capsys):
    how = {"max_new_tokens": 12, "temperature": 0.7, "seeds": range(len(prompts))}
    expected = generate(llama, prompts, **how)
    told = {}
    with room_for(llama, rows, run_out):
        assert generate(llama, prompts, done=told.__setitem__, **how) == expected
    assert [told[i] for i in range(len(prompts))] == expected
    assert "Out of memory with 9 answers at once. Going on with 4." in capsys.readouterr().err


@pytest.mark.fault("out of memory", "in a batch of a detection")
def test_detection(llama, monkeypatch, capsys):
    monkeypatch.setattr(detection, "SUCCESS_ROUGE", -1.0)
    expected = detect(llama, GRID)
    with room_for(llama, 2):
        scores = detect(llama, GRID)
    np.testing.assert_array_equal(scores.runs, expected.runs)
    assert scores.cases.drop(columns="seconds").equals(expected.cases.drop(columns="seconds"))
    assert "Out of memory with 12 cases at once. Going on with 6." in capsys.readouterr().err


@pytest.mark.fault("out of memory", "in a batch of likelihoods")
def test_likelihoods(llama, prompts):
    expected = log_probabilities(llama, prompts, prompts)
    with room_for(llama, 2):
        assert log_probabilities(llama, prompts, prompts) == pytest.approx(expected, rel=1e-5)


@pytest.mark.fault("out of memory", "for a single text")
def test_no_room_at_all(llama, prompts):
    with room_for(llama, 0), pytest.raises(UserError, match="single answer.*`rmutils doctor`"):
        generate(llama, prompts, max_new_tokens=2)


def test_other_errors_stay(llama, prompts):
    def other():
        raise RuntimeError("shapes do not fit")

    with room_for(llama, 1, other), pytest.raises(RuntimeError, match="shapes do not fit"):
        generate(llama, prompts, max_new_tokens=2)
