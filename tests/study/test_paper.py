"""The paper's study: its jobs are those of the paper's tables; they run where models are folders,
the data set is a file, and a few lines stand for HELMET."""

import json
import shutil
import sys

import pytest

from rmutils.book.jobs import jobs as records
from rmutils.book.jobs.plan import plan, read, write
from rmutils.book.jobs.published_experiments import (
    CHECKPOINTS,
    EXPERIMENTS,
    LLAMA,
    PRINTED,
    QWEN,
    HelmetConfig,
    official_stored,
)
from rmutils.book.jobs.studies import Evaluation, PaperConfig, Study, paper, study_of
from rmutils.core import results as artifacts
from rmutils.core.errors import UserError
from rmutils.heads.scores import HeadScores
from rmutils.paper.tables import load_tables
from rmutils.preference.strategies import STRATEGIES
from rmutils.training.compute_backend import ComputeBackend
from tests.evaluation.helmet import helmet_files

HELMET = """\
import json, sys
from pathlib import Path
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
weights, out = given["--model_name_or_path"], Path(given["--output_dir"])
assert json.loads(Path(weights, "config.json").read_text())["model_type"] == "llama"
assert given["--config"].endswith("rag.yaml"), "only one category is wanted"
out.mkdir(parents=True, exist_ok=True)
length = Path(given["--config"]).read_text().split("input_max_length: ")[1].split(",")[0]
for file in Path("results").glob(f"kilt_*_in{{length}}_*"):
    (out / file.name).write_text(file.read_text().replace({model!r}, weights))
"""
"""In place of HELMET's `eval.py`: results that are written already become those of the model. What
is not among them is left out without a word, as by HELMET where a data set fails."""


@pytest.mark.parametrize("table", [1, 4, 5, 9])
def test_trainings_are_the_rows_of_the_papers_tables(table):
    told = load_tables()
    told = told[(told["source"] == "en") & (told["table"] == table)]
    rows = {(model, row) for model, row in zip(told["group"], told["row"], strict=True)
            if row != "Before"}
    ours = {(PRINTED[e.model], STRATEGIES[s].name) for e in EXPERIMENTS for s in e.strategies
            if e.place in (f"Table {table}", "Table 1" if table == 9 else "")}
    assert rows <= ours and (table == 9 or rows == ours)


def test_plan_has_all_of_it_once_and_shares_what_can_be_shared(tmp_path):
    jobs = plan(study_of("paper"))
    trained = [job.run for job in jobs.values() if job.stage == "train"]
    assert len(trained) == sum(len(e.strategies) for e in EXPERIMENTS)
    assert {job.compute_backend.launch.settings for job in jobs.values() if job.stage == "train"
            and job.model == QWEN} == {"zero2"}
    whole = [job for job in jobs.values() if job.stage == "generate" and not job.side
             and job.model == LLAMA and job.run.instructions == 294_121]
    # One for all strategies; Win-Lose-Pair's second response is on the other side.
    assert len(whole) == 1
    asked = [job for job in jobs.values() if job.stage == "evaluate" and job.run is None]
    assert {job.model for job in asked} == {*PRINTED, *CHECKPOINTS.values()}
    helmet = [job.evaluation for job in asked if isinstance(job.evaluation, HelmetConfig)]
    assert {length for config in helmet for length in config.lengths} == {
        8192, 16384, 32768, 65536, 131072}
    assert read(write(jobs, tmp_path)) == jobs


def test_only_checkpoints_need_no_training(tmp_path):
    jobs = plan(study_of("paper", {"places": "[]", "checkpoints": json.dumps({"a/b": QWEN})}))
    assert {job.stage for job in jobs.values()} == {"fetch", "evaluate"}
    assert {job.evaluation.thinking for job in jobs.values() if job.model == "a/b"
            and isinstance(job.evaluation, HelmetConfig)} == {True}
    with pytest.raises(UserError, match="checkpoints"):
        study_of("paper", {"checkpoints": json.dumps({"a/b": "moon"})})
    with pytest.raises(UserError, match="study smoke has no parameters"):
        study_of("smoke", {"models": QWEN})


def test_nodes_and_gpus_are_asked_of_the_cluster():
    jobs = plan(study_of("paper", {f"compute_backend.{name}": value for name, value in {
        "launch.nodes": "2", "launch.gpus": "8", "tensor_parallel": "2", "engines": "3"}.items()}))
    train = next(job for job in jobs.values() if job.stage == "train")
    generate = next(job for job in jobs.values() if job.stage == "generate")
    assert (train.resources.gpu, train.resources.nodes) == (16, 2)
    assert (generate.resources.gpu, generate.resources.nodes) == (6, 1)
    # Each process has eight billion weights in float32, each engine in bfloat16.
    assert train.resources.mem_mb > 8 * 32_000 and generate.resources.mem_mb > 3 * 16_000
    assert generate.resources.threads == 12


@pytest.fixture
def config(tiny, tmp_path, monkeypatch) -> PaperConfig:
    """A study of one training of a folder, with Wu's texts in files, LMSYS-Chat-1M in a file."""
    select = HeadScores.select
    monkeypatch.setattr(HeadScores, "select", lambda scores, **_: select(scores, top_k=8))
    data = tmp_path / "data" / "lmsys" / "lmsys-chat-1m"
    data.mkdir(parents=True)
    lines = [{"conversation": [{"role": "user", "content": f"What is {n} and {n}?"}],
              "redacted": False, "openai_moderation": [{"flagged": False}], "language": "English"}
             for n in range(40)]
    (data / "train.jsonl").write_text("\n".join(map(json.dumps, lines)))
    monkeypatch.setenv("RMUTILS_DATASETS", str(tmp_path / "data"))
    haystack = tmp_path / "haystack"
    haystack.mkdir()
    (haystack / "one.txt").write_text("The harbour was quiet, and the boats were in. " * 80)
    needle = {"needle": "Ada hid a coin in the old mill.", "question": "What did Ada hide?",
              "real_needle": "a coin"}
    (tmp_path / "needles.jsonl").write_text(json.dumps(needle))
    return PaperConfig().changed({
        "models": LLAMA, "copies": {LLAMA: str(tiny)}, "places": "Table 9", "checkpoints": {},
        "instructions": 6, "abilities": False, "compute_backend": ComputeBackend(),
        "detect.lengths": "240", "detect.depths": "0.5", "detect.max_new_tokens": 4,
        "detect.haystack": haystack, "detect.needle_file": tmp_path / "needles.jsonl"})


def test_study_of_local_folders_runs(config, tmp_path, monkeypatch):
    clone = tmp_path / "HELMET"
    clone.mkdir()
    for length in (8192, 16384):
        helmet_files.written(clone / "results", length=length)
    (clone / "eval.py").write_text(HELMET.format(model=helmet_files.MODEL))
    binary = clone / ".venv" / "bin"
    binary.mkdir(parents=True)
    (binary / "python").symlink_to(sys.executable)
    monkeypatch.setenv("RMUTILS_HELMET", str(clone))
    [(model, [run])] = paper(config).runs.items()
    # As the recipe, but answers, steps and questions are few.
    run = run.changed({"responses.max_new_tokens": 5, "recipe.max_steps": 1, "recipe.batch": 4})
    asked = [HelmetConfig(lengths=(length,), categories=("RAG",)) for length in (8192, 16384)]
    study = Study({model: [run]}, {model: [*map(Evaluation, asked)]})
    jobs = read(write(plan(study), tmp_path))  # as a job on another node reads it
    assert [job.stage for job in jobs.values()] == [
        "fetch", "detect", "mask", "generate", "generate", "pairs", "train", *["evaluate"] * 4]
    folder = tmp_path / "records"
    for name in jobs:
        records.carry_out(jobs, folder, name, threads=1)
    after = [name for name, job in jobs.items() if job.stage == "evaluate" and job.run]
    [training] = artifacts.stored("train")
    for name in after:
        [told] = records.results_of(jobs, folder)[name]
        assert artifacts.find(told).manifest["inputs"] == {"model": training.key}
    for one in asked:
        scores, _ = official_stored(training.key, one, compute="never")
        assert set(scores["category"]) == {"RAG"} and set(scores["length"]) == {*one.lengths}
    next((clone / "results").glob("kilt_popqa_3_*_in16384_*")).unlink()
    with pytest.raises(UserError, match=r"HELMET has no scores of popqa at 16384; .* same command"):
        official_stored(training.key, asked[1], compute="always")
    assert official_stored(training.key, asked[0], compute="always")[0].equals(
        official_stored(training.key, asked[0])[0])
    shutil.rmtree(folder)
    records.settle(jobs, folder)
    for name in jobs:
        assert records.record_of(folder, name).exists(), "what is stored is not done again"


def test_helmet_has_to_be_there(tiny, monkeypatch):
    monkeypatch.delenv("RMUTILS_HELMET", raising=False)
    with pytest.raises(UserError, match="git clone .*HELMET.*export RMUTILS_HELMET"):
        official_stored(str(tiny), HelmetConfig(lengths=(8192,)))
