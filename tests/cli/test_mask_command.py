"""`rmutils mask`, on a small random model whose every answer counts as a success."""

import json
import os
import shlex

import pytest
import torch
from typer.testing import CliRunner

from rmutils.__main__ import app
from rmutils.core import results
from rmutils.heads import detection as store
from rmutils.models import REGISTRY, load_model, loading
from tests.cli.conftest import assert_refused

HIGHEST = [(3, 1), (0, 2), (1, 0)]


def rmutils(*words):
    return CliRunner().invoke(app, ["mask", *map(str, words)])


def masked_in(folder) -> list[tuple[int, int]]:
    """Heads of size 8 whose columns of W_o are zero."""
    layers = load_model(str(folder)).model.model.layers
    return [(i, j) for i, layer in enumerate(layers) for j in range(4)
            if (layer.self_attn.o_proj.weight[:, 8 * j : 8 * j + 8] == 0).all()]


def test_masks_the_heads_of_a_file(tiny, scores, tmp_path):
    done = rmutils(tiny, "--scores", scores, "--out", tmp_path / "out", "--tau", "0.05")
    assert done.exit_code == 0, done.output
    assert masked_in(tmp_path / "out") == sorted(HIGHEST[:2])
    lines = done.stdout.splitlines()
    assert lines[0] == "tiny model: 2 of 16 heads masked (retrieval)."
    assert lines[1] == f"Written to {tmp_path / 'out'}"
    assert f"load_model('{tmp_path / 'out'}')" in lines[2]
    whole, masked = (load_model(str(p)).model for p in (tiny, tmp_path / "out"))
    ids = torch.arange(100, 160)[None]
    assert not torch.equal(whole(ids).logits, masked(ids).logits)


def test_heads_by_name(tiny, tmp_path):
    done = rmutils(tiny, "--heads", "3-1,0-2", "--out", tmp_path / "out", "--json")
    told = json.loads(done.stdout)
    assert masked_in(tmp_path / "out") == [(0, 2), (3, 1)] == [*map(tuple, told["heads"])]
    assert (told["policy"], told["tau"]) == (None, None)
    for words, said in {("4-0",): "has no head 4-0", ("",): "at least 1 value",
                        ("3-1", "--top-k", "2"): "--heads names the heads to mask",
                        ("3-1", "--policy", "random"): "--heads names the heads to mask",
                        ("3:1",): "expected pairs (layer, head)",
                        ("3-01",): "expected pairs (layer, head)",
                        ("3-1,",): "expected pairs (layer, head)"}.items():
        done = rmutils(tiny, "--out", tmp_path / "other", "--heads", *words)
        assert done.exit_code == 2 and said in done.stderr, done.output


@pytest.mark.parametrize("name, heads", [("tiny model", HIGHEST[:1]), ("tiny-llama", HIGHEST[:1]),
                                         ("tiny-qwen3", HIGHEST[:2]), ("tiny-olmo3", HIGHEST[:2])])
def test_threshold_is_the_models_own(tiny, scores, tmp_path, monkeypatch, name, heads):
    """Section 4.1: 0.1 for Llama, 0.05 for Qwen3 and Olmo 3."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(loading, "SHIPPED_MODELS", tmp_path)
    tiny.rename(tmp_path / name)
    done = rmutils(name, "--scores", scores, "--out", "out", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["heads"] == [list(head) for head in heads]
    assert found["tau"] == (REGISTRY[name].tau if name in REGISTRY else 0.1)


def test_detects_once(tiny, tmp_path, monkeypatch):
    """Without --scores the model is searched; a second mask reads the stored result."""
    first = json.loads(rmutils(tiny, "--out", tmp_path / "a", "--top-k", "5", "--json").stdout)
    scores, artifact = store.detect_stored(str(tiny), compute="never")
    assert first["heads"] == [list(head) for head in scores.select(top_k=5)]
    monkeypatch.setattr(store, "detect", None)
    second = rmutils(tiny, "--out", tmp_path / "b", "--top-k", "5", "--json")
    assert second.exit_code == 0 and json.loads(second.stdout)["heads"] == first["heads"]
    [detection] = results.stored("detect")
    assert shlex.split(detection.manifest["command"])[:3] == [
        "rmutils", "detect", os.path.relpath(tiny)]


def test_errors_exit_with_2(tiny, scores, tmp_path, monkeypatch):
    """The message alone, and nothing is written. A folder that is taken is told at once."""
    (tmp_path / "taken").write_text("mine")
    (tmp_path / "other.json").write_text('{"0-0": [1]}')
    monkeypatch.setattr(store, "detect", None)
    out = ("--out", tmp_path / "out")
    assert_refused(rmutils, {
        (tiny, "--scores", scores, *out, "--tau", "0.4"): "reaches tau=0.4",
        (tiny, "--scores", scores, *out, "--top-k", "17"): "top_k=17: scores has 16 heads",
        (tiny, "--scores", scores, *out, "--top-k", "1", "--tau", "0.1"): "exclude each other",
        (tiny, "--scores", scores, *out, "--policy", "non-retrieval", "--top-k", "9"): "only 7",
        (tiny, "--scores", tmp_path / "other.json", *out): "the model has 4 x 4",
        (tiny, "--out", tmp_path / "taken"): "taken exists and is not an empty folder",
        (tiny, "--scores", scores, "--out", tmp_path / "taken" / "out"): "cannot be written",
        ("no-model", *out): "no model is called 'no-model'",
    })
    assert not (tmp_path / "out").exists() and (tmp_path / "taken").read_text() == "mine"
    assert rmutils(tiny, "--scores", scores, *out, "--policy", "all").exit_code == 2
