"""A detection or a training that is killed goes on where it was, with the same result."""

import json
import threading
from functools import partial

import numpy as np
import pytest
import torch

from rmutils.core import results
from rmutils.heads import DetectConfig, detection
from rmutils.heads.detection import detect_stored
from rmutils.models.teaching import TeachingRecipe, pretraining, stream, train
from tests.clock import forked, until


def halted(monkeypatch, owner, name):
    """After some calls it waits for the kill, which so comes in the middle."""
    own, begun = getattr(owner, name), []

    def halting(*given):
        begun.append(given)
        if len(begun) > 6:
            threading.Event().wait()
        return own(*given)

    monkeypatch.setattr(owner, name, halting)


GRID = DetectConfig(lengths=(240, 300), depths=(0.0, 0.5, 1.0), needles=4, max_new_tokens=4)
CASES = 4 * 2 * 3


@pytest.mark.fault("kill -9", "in a detection")
def test_detection_goes_on_after_kill_9(tiny, cache, monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        halted(patch, detection, "_record")
        process = forked(detect_stored, str(tiny), GRID)
    journal = until(lambda: next(cache.glob("artifacts/.*.partial/.journal.jsonl"), None))
    until(lambda: journal.read_text().count("\n") >= 3)
    process.kill()
    process.join()
    lines = journal.read_text().splitlines(keepends=True)
    done = [json.loads(line.partition("\t")[0])[0] for line in lines if line.endswith("\n")]
    assert 3 <= len(done) < CASES and list(results.stored()) == []

    ran = []
    record = detection._record
    monkeypatch.setattr(detection, "_record", lambda *a: ran.append(a[1].id) or record(*a))
    scores, artifact = detect_stored(str(tiny), GRID)
    assert sorted(done + ran) == sorted(scores.cases["case"]) and len(scores.cases) == CASES
    assert artifact.problems() == [] and not list(cache.glob("artifacts/.*.partial"))

    monkeypatch.setenv("RMUTILS_CACHE", str(tmp_path / "another cache"))
    undisturbed, same_name = detect_stored(str(tiny), GRID)
    np.testing.assert_array_equal(scores.runs, undisturbed.runs)
    assert same_name.name == artifact.name and same_name.folder != artifact.folder
    assert scores.cases.drop(columns="seconds").equals(undisturbed.cases.drop(columns="seconds"))


RECIPE = TeachingRecipe(
    family="llama", vocab_size=400, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, head_dim=4, steps=30, tokens_per_step=128,
    curriculum=((1.0, 64),), warmup=2)


@pytest.mark.fault("kill -9", "in the training of a teaching model")
def test_training_goes_on_after_kill_9(tmp_path, monkeypatch):
    folder, whole = tmp_path / "killed", tmp_path / "whole"
    monkeypatch.setattr(stream, "TEXTS", 60)
    with monkeypatch.context() as patch:
        patch.setattr(pretraining, "CHECKPOINT_STEPS", 2)
        halted(patch, stream.Stream, "batch")
        process = forked(partial(train, device="cpu"), RECIPE, folder)
    checkpoint = folder / ".training" / "checkpoint.pt"
    until(checkpoint.exists)
    process.kill()
    process.join()
    saved = torch.load(checkpoint)["step"]
    assert 2 <= saved < 30 and not (folder / "training.csv").exists()

    steps, batch = [], stream.Stream.batch
    monkeypatch.setattr(stream.Stream, "batch",
                        lambda s, step: steps.append(step) or batch(s, step))
    train(RECIPE, folder, device="cpu")
    assert steps == list(range(saved, 30))
    train(RECIPE, whole, device="cpu")
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    curves = [[line.rsplit(",", 1)[0] for line in (f / "training.csv").read_text().splitlines()]
              for f in (folder, whole)]
    assert curves[0] == curves[1] and len(curves[0]) == 31
