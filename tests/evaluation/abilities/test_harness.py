"""lm-evaluation-harness: the command, its results, and, where it is installed, the whole way.

`harness_results/` is what version 0.4.13 wrote for `tiny-llama` on 20 questions of this project,
with the command that `command` gives and the tasks that `write_tasks` writes; only the description
of the machine (`pretty_env_info`) was taken out.
"""

import json
import shutil
import sys
import types
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml

from rmutils.core.errors import UserError
from rmutils.core.paths import SHIPPED_MODELS
from rmutils.evaluation.abilities import harness
from rmutils.evaluation.abilities.ability_tasks import short
from rmutils.evaluation.abilities.evaluate_abilities import GeneralConfig, evaluate_general
from rmutils.evaluation.abilities.harness import (
    BENCHMARKS,
    Benchmark,
    HarnessConfig,
    checkpoint,
    command,
    find_results,
    lm_eval_model,
    read_results,
    run_harness,
)
from rmutils.evaluation.abilities.short_tasks import known
from rmutils.heads import export_masked, mask_heads
from rmutils.models import load_model
from rmutils.models.loading import trained_folder
from tests.conftest import make_lm

RECORDED = Path(__file__).parent / "harness_results"
KNOWN = {"choice": Benchmark("world_choice", "acc_norm"),
         "short": Benchmark("world_short", "exact_match")}
CONFIG = HarnessConfig(benchmarks=tuple(KNOWN), max_new_tokens=40, batch=4)
CHOICE, SHORT = 12, 8


def write_tasks(folder: Path) -> None:
    """A group of two tasks with options and a task with written answers, from local files."""
    def write(name, items, **task):
        rows = [{"question": i.prompt, "right": i.right, "options": i.options} for i in items]
        data = folder / f"{name}.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        metrics = [{"metric": metric, "aggregation": "mean", "higher_is_better": True}
                   for metric in task.pop("metrics")]
        (folder / f"{name}.yaml").write_text(yaml.safe_dump({
            "task": name, "dataset_path": "json", "test_split": "test",
            "dataset_kwargs": {"data_files": {"test": str(data)}}, "doc_to_text": "{{question}}",
            "doc_to_target": "{{right}}", "metric_list": metrics, "metadata": {"version": 1.0},
            **task}))

    items = known(CHOICE, 0)
    for name, some in (("one", items[:6]), ("two", items[6:])):
        write(f"world_choice_{name}", some, output_type="multiple_choice", target_delimiter="",
              doc_to_choice="{{options}}", metrics=["acc", "acc_norm"])
    write("world_short", short(SHORT, 0), output_type="generate_until", metrics=["exact_match"],
          generation_kwargs={"until": ["\n"], "do_sample": False})
    (folder / "world_choice.yaml").write_text(yaml.safe_dump({
        "group": "world_choice", "task": ["world_choice_one", "world_choice_two"],
        "aggregate_metric_list": [
            {"metric": "acc_norm", "aggregation": "mean", "weight_by_size": True}]}))


@pytest.fixture
def copied(tmp_path) -> Path:
    """The recorded results, to be damaged."""
    shutil.copytree(RECORDED, tmp_path / "results")
    return tmp_path / "results"


def damage(folder: Path, change) -> None:
    """Change the JSON of the results."""
    path = find_results(folder)
    results = json.loads(path.read_text())
    change(results)
    path.write_text(json.dumps(results))


def test_recorded_results():
    table, about = read_results(RECORDED, KNOWN)
    assert table.columns.tolist() == ["task", "kind", "sample", "score", "response"]
    assert about["version"] == "0.4.13" and about["model"] == "tiny-llama"
    choice, written = (table[table["task"] == name] for name in KNOWN)
    assert choice["kind"].tolist() == ["world_choice_one"] * 6 + ["world_choice_two"] * 6
    assert choice["sample"].tolist() == list(range(CHOICE)) and len(written) == SHORT
    lines = next(RECORDED.rglob("samples_world_short_*.jsonl")).read_text().splitlines()
    for row, line in zip(written.itertuples(), map(json.loads, lines), strict=True):
        assert (row.score, row.response) == (100 * line["exact_match"], line["resps"][0][0])
    assert round(choice["score"].mean(), 4) == 91.6667  # printed by the harness


def test_the_same_questions_asked_here():
    """The recorded scores and answers are those that this project's own evaluation gives."""
    lm, (table, _) = load_model("tiny-llama"), read_results(RECORDED, KNOWN)
    config = GeneralConfig(samples=CHOICE, tasks=("multiple choice",))
    ours = evaluate_general(lm, config).samples
    choice = table[table["task"] == "choice"]
    assert ours["score"].tolist() == choice["score"].tolist()
    config = GeneralConfig(samples=SHORT, tasks=("short instructions",))
    ours = evaluate_general(lm, config).samples
    for mine, theirs in zip(ours["response"], table.query("task == 'short'")["response"],
                            strict=True):
        assert mine.startswith(theirs.strip()) or theirs.strip().startswith(mine)


def test_a_line_separator_in_a_response(copied):
    """It is no end of a line of JSON, though `str.splitlines` takes it for one."""
    samples = next(copied.rglob("samples_world_short_*.jsonl"))
    first, *rest = map(json.loads, samples.read_text().split("\n")[:-1])
    first["resps"] = [["One\u2028two\x85three."]]
    samples.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in [first, *rest]))
    table, _ = read_results(copied, KNOWN)
    assert "One\u2028two\x85three." in table["response"].tolist()


def test_newest_results_count(copied):
    older = find_results(copied)
    newer = older.with_name("results_2999-01-01T00-00-00.000000.json")
    newer.write_text("{}")
    assert find_results(copied) == newer
    with pytest.raises(UserError, match="2999.*cut short, or is not of lm-evaluation-harness"):
        read_results(copied, KNOWN)


def test_what_was_not_run_is_left_out(copied):
    table, _ = read_results(copied, KNOWN | BENCHMARKS)
    assert table["task"].unique().tolist() == ["choice", "short"]
    with pytest.raises(UserError, match="holds none of gpqa.*, but world_choice_one"):
        read_results(copied, BENCHMARKS)


def test_results_of_another_version(copied):
    def rename(results):
        scores = results["results"]["world_short"]
        scores["exact_match"] = scores.pop("exact_match,none")

    damage(copied, rename)
    with pytest.raises(UserError, match="world_short has no 'exact_match,none', but .*0.4.13"):
        read_results(copied, KNOWN)
    find_results(copied).write_text("{")
    with pytest.raises(UserError, match="was cut short, or is not of"):
        read_results(copied, KNOWN)


def test_checkpoints(llama, tiny, tmp_path, monkeypatch):
    """A hub id and a folder stay what they are; what only this project can load is written."""
    monkeypatch.setattr(harness, "load_model", {"smollm2-135m": llama, "a/b@c": llama}.get)
    assert checkpoint("qwen3-8b", tmp_path / "a") == "Qwen/Qwen3-8B"
    assert checkpoint("org/model", tmp_path / "a") == "org/model"
    assert checkpoint(str(tiny), tmp_path / "a") == str(tiny)
    assert checkpoint("tiny-llama", tmp_path / "a") == str(trained_folder("tiny-llama"))
    for name in ("smollm2-135m", "a/b@c", "smollm2-135m"):
        written = checkpoint(name, tmp_path / "b" / name)
        assert load_model(written).shape == llama.shape


def test_without_the_harness(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(UserError, match=r"not installed here.*pip install \"lm-eval\[hf,math\]\".*"
                                        r"HF_ALLOW_CODE_EVAL=1 lm_eval --tasks x"):
        run_harness(["lm_eval", "--tasks", "x"])
    program = tmp_path / "lm_eval"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(UserError, match="failed with status 3.*hf auth login"):
        run_harness(["lm_eval"])


@pytest.mark.skipif(not shutil.which("lm_eval"), reason=f"no lm_eval: {harness.INSTALL}")
def test_the_whole_way(tmp_path, monkeypatch):
    """The harness itself on `tiny-llama`: what is recorded, once more; and data that are missing.
    """
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    (tmp_path / "tasks").mkdir()
    write_tasks(tmp_path / "tasks")
    words = command(str(SHIPPED_MODELS / "tiny-llama"), tmp_path / "out", CONFIG, known=KNOWN,
                    include=tmp_path / "tasks")
    run_harness(words)
    table, about = read_results(tmp_path / "out", KNOWN)
    recorded, _ = read_results(RECORDED, KNOWN)
    pd.testing.assert_frame_equal(table.drop(columns="response"),
                                  recorded.drop(columns="response"))
    assert about["model"] == str(SHIPPED_MODELS / "tiny-llama")
    only = HarnessConfig(benchmarks=("GPQA",))
    with pytest.raises(UserError, match="failed with status 1.*GPQA's terms"):
        run_harness(command("org/none", tmp_path / "gpqa", only))


def test_a_model_in_memory_without_the_harness(monkeypatch, tokenizer):
    """It is asked for; and what stands in for it here cannot change the model."""
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(UserError, match=r"not installed here. Install it: `pip install \"lm-eval"):
        lm_eval_model("tiny-llama")
    lm = make_lm("llama", tokenizer)
    lm.model.lm_head.weight = torch.nn.Parameter(lm.model.lm_head.weight + 1)

    def stand_in(pretrained, tokenizer, **given):
        pretrained.tie_weights()
        tokenizer.pad_token = "<|im_end|>"
        return given

    for name in ("lm_eval", "lm_eval.models", "lm_eval.models.huggingface"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setattr(sys.modules[name], "HFLM", stand_in, raising=False)
    before = lm.model.lm_head.weight.clone()
    assert lm_eval_model(lm, batch=3, thinking=True) == {
        "batch_size": 3, "max_length": 1024, "enable_thinking": True,
        "think_end_token": "</think>"}
    assert torch.equal(lm.model.lm_head.weight, before) and lm.tokenizer.pad_token != "<|im_end|>"


@pytest.mark.skipif(not find_spec("lm_eval"), reason=f"no lm_eval: {harness.INSTALL}")
def test_a_model_in_memory(tmp_path, monkeypatch):
    """The recorded scores of the whole model; of a masked one, those of its export."""
    import lm_eval
    from lm_eval.models.huggingface import HFLM

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    (tmp_path / "tasks").mkdir()
    write_tasks(tmp_path / "tasks")

    def scores(model):
        found = lm_eval.simple_evaluate(
            model, tasks=["world_choice", "world_short"], apply_chat_template=True,
            gen_kwargs="max_gen_toks=40", log_samples=True,
            task_manager=lm_eval.tasks.TaskManager(include_path=str(tmp_path / "tasks")))
        return [[row[metric] for row in sorted(found["samples"][task], key=lambda r: r["doc_id"])]
                for task, metric in (("world_choice_one", "acc_norm"), ("world_choice_two",
                                     "acc_norm"), ("world_short", "exact_match"))]

    lm = load_model("tiny-llama", device="cpu")
    recorded, _ = read_results(RECORDED, KNOWN)
    whole = scores(lm_eval_model(lm))
    assert [100 * one for part in whole for one in part] == recorded["score"].to_list()
    heads = [(3, 7), (3, 6), (3, 12), (2, 4), (3, 15)]
    export = export_masked(lm, heads, tmp_path / "masked")
    with mask_heads(lm, heads):
        masked = scores(lm_eval_model(lm))
    assert masked == scores(HFLM(pretrained=str(export), device="cpu", dtype="float32",
                                 batch_size=8)) != whole
