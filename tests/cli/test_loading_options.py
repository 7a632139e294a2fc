"""--device, --dtype and --revision: one definition for all commands that load a model."""

import inspect
import json
import os

import huggingface_hub.constants
import pytest
import torch
from typer.testing import CliRunner

from rmutils import __main__ as cli
from rmutils.book.commands import measure
from rmutils.cli import evaluate, heads_commands, method, options
from rmutils.core import results
from rmutils.core.journal import default_workers
from rmutils.heads import DetectConfig
from rmutils.heads.detection import detect_stored
from rmutils.models import identify, load_model
from tests.conftest import make_lm

SMALL = ["--lengths", "200", "--depths", "0.5", "--needles", "1", "--max-new-tokens", "4"]
CONFIG = DetectConfig(lengths=(200,), depths=(0.5,), needles=1, max_new_tokens=4)


def rmutils(*words):
    return CliRunner().invoke(cli.app, [*map(str, words)], env={"COLUMNS": "200"})


def test_every_command_that_takes_a_model_has_them():
    modules = [vars(module).values() for module in (evaluate, heads_commands, measure, method)]
    commands = [one for values in modules for one in values if inspect.isfunction(one)
                and one.__module__.startswith(("rmutils.cli", "rmutils.book.commands"))]
    commands += [one.callback for one in measure.variants_app.registered_commands]
    names = [inspect.signature(one).parameters for one in commands]
    taking = [one for one in names if "model" in one and one["model"].annotation == options.Model]
    assert len(taking) >= 15
    assert all({"device", "dtype", "revision"} <= {*one} for one in taking)


def test_precision_makes_another_result_and_its_default_none(tiny, monkeypatch):
    plain = detect_stored(str(tiny), CONFIG)[1]
    same = json.loads(rmutils("detect", tiny, *SMALL, "--dtype", "float32", "--json").stdout)
    half = json.loads(rmutils("detect", tiny, *SMALL, "--dtype", "bfloat16", "--json").stdout)
    assert "RMUTILS_DTYPE" not in os.environ and same["artifact"] == plain.name
    manifest = next(a for a in results.stored() if a.name == half["artifact"]).manifest
    assert manifest["inputs"]["model"] == identify(str(tiny), torch.bfloat16)
    assert manifest["command"].startswith("env RMUTILS_DTYPE=bfloat16 rmutils detect ")
    assert manifest["config"] == plain.manifest["config"]
    monkeypatch.setenv("RMUTILS_DTYPE", "bfloat16")
    assert load_model(str(tiny)).model.dtype == torch.bfloat16
    assert detect_stored(str(tiny), CONFIG, compute="never")[1].name == half["artifact"]


def test_a_revision_of_the_hub_is_loaded_and_is_its_results_identity(
        cache, tmp_path, monkeypatch, tokenizer):
    """Two revisions in the hub's cache, without a network."""
    hub, ids = tmp_path / "hub", torch.arange(100, 130)[None]
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(hub))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    own = {}
    for seed, ref in enumerate(("main", "v1")):
        commit, place = str(seed) * 40, hub / "models--org--model"
        own[ref] = make_lm("llama", tokenizer, seed)
        own[ref].model.save_pretrained(place / "snapshots" / commit)
        tokenizer.save_pretrained(place / "snapshots" / commit)
        (place / "refs").mkdir(exist_ok=True)
        (place / "refs" / ref).write_text(commit)
    for lm, ref, commit in ((load_model("org/model"), "main", "0"),
                            (load_model("org/model", revision="v1"), "v1", "1"),
                            (load_model("org/model@v1"), "v1", "1")):
        torch.testing.assert_close(lm.model(ids).logits, own[ref].model(ids).logits)
        assert lm.identity == f"hub:org/model@{commit * 40} float32"
        assert lm.name == "org/model" + "@v1" * (ref == "v1") == lm.source
    done = rmutils("merge", "org/model", tmp_path / "whole", "--revision", "v1")
    assert done.exit_code == 0, done.output
    whole = load_model(str(tmp_path / "whole"))
    torch.testing.assert_close(whole.model(ids).logits, own["v1"].model(ids).logits)
    gone = rmutils("merge", "org/model", tmp_path / "other", "--revision", "v2")
    assert gone.exit_code == 2 and "`hf download org/model --revision v2`" in gone.stderr


@pytest.mark.parametrize(("words", "message"), [
    (["--device", "abacus"], "rmutils: there is no device 'abacus' on this machine. Known: cpu"),
    (["--device", "meta:x"], "rmutils: there is no device 'meta:x' on this machine. Known: cpu"),
    (["--device", "meta"], "rmutils: there is no device 'meta' on this machine. Known: cpu"),
    (["--needle-file", "x" * 300], "xxx...: this name is too long"),
    (["--dtype", "int8"], "'int8' is not one of"),
    (["--revision", "v1"], "tiny model is not loaded from the hub, so it has no revision 'v1'"),
])
def test_what_cannot_be_is_told(tiny, words, message):
    done = rmutils("detect", tiny, *words)
    assert done.exit_code == 2 and message in done.stderr and done.stdout == "", done.output


def test_workers_share_the_device_that_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    assert default_workers() == 8
    for device, cores, workers in (
            ("cuda:1", 8, 1), ("cpu", 8, 4), ("cpu", 3, 3), ("cpu", None, 1)):
        monkeypatch.setenv("RMUTILS_DEVICE", device)
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        assert default_workers() == workers
