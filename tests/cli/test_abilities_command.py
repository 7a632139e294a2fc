"""`rmutils abilities`, on a small random model."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rmutils import __main__ as cli
from rmutils.evaluation.abilities import harness
from tests.cli.conftest import assert_refused

RECORDED = Path(__file__).parents[1] / "evaluation" / "abilities" / "harness_results"
FEW = ["-p", "samples", "2", "-p", "tasks", "arithmetic,letters", "-p", "passages", "2"]


@pytest.fixture
def model(tiny):
    return str(tiny)


def rmutils(*words):
    return CliRunner().invoke(cli.app, ["abilities", "--workers", "1", *words])


def test_scores_with_intervals(model):
    done = rmutils(model, *FEW, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [(t["task"], t["samples"], t["unscored"]) for t in found["tasks"]] == [
        ("arithmetic", 2, 0), ("letters", 2, 0)]
    assert all(0 <= t["low"] <= t["value"] <= t["high"] <= 100 for t in found["tasks"])
    assert found["drift"] == [] and found["artifact"].startswith("general/")
    text = rmutils(model, *FEW, "--compute", "never")
    assert text.exit_code == 0 and "arithmetic" in text.stdout and "(2 samples)" in text.stdout
    moved = rmutils(model, *FEW, "--base", model)
    assert moved.exit_code == 0, moved.output
    assert "KL from the base model" in moved.stdout and "perplexity before" in moved.stdout


def test_recorded_results_of_the_harness(model, monkeypatch):
    monkeypatch.setattr(harness, "BENCHMARKS", {
        "GPQA": harness.Benchmark("world_choice", "acc_norm"),
        "HumanEval": harness.Benchmark("world_short", "exact_match")})
    done = rmutils("tiny-llama", "--harness", str(RECORDED), "--json",
                   "-p", "benchmarks", "GPQA,HumanEval")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["version"] == "0.4.13"
    assert [t["task"] for t in found["tasks"]] == ["GPQA", "HumanEval"]


def test_errors_exit_with_2(model, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    (tmp_path / "none.jsonl").touch()
    assert_refused(rmutils, {
        (model, "-p", "tasks", "cooking"): "no task 'cooking' for this model. Its tasks: arithm",
        (model, *FEW, "--compute", "never"): "Make it: `rmutils abilities",
        (model, "--trainings", "--harness", "x"): "exclude each other",
        (model, "--mt-bench", "x"): "--mt-bench needs a judge",
        (model, "--mt-bench", "x", "--judge", "here"): "'here' is not the address of a server",
        (model, "--mt-bench", "x", "--judge", "http://127.0.0.1:9"): "x: no such file",
        (model, "--mt-bench", str(tmp_path / "none.jsonl"), "--judge", "http://127.0.0.1:9"):
            "none.jsonl holds no questions",
        (model, "--trainings"): "no runs on",
        (model, "--harness", str(tmp_path / "x"), "-p", "benchmarks", "MT-Bench"):
            "no benchmark 'MT-Bench'",
        ("no-model",): "no model is called 'no-model'",
    })
