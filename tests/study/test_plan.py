"""A study has each job once, in order; its jobs make what a run uses; what is stored is left."""

import os
import shutil
from collections import Counter

import pytest

from rmutils.book.experiments.planned_runs import MODELS, planned_runs
from rmutils.book.jobs import jobs as records
from rmutils.book.jobs.plan import plan, read, write
from rmutils.book.jobs.studies import STUDIES, Evaluation, Study, study_of
from rmutils.core import results
from rmutils.evaluation.helmet import EvaluateConfig
from rmutils.heads.scores import HeadScores
from rmutils.pipeline import retmask as pairing
from rmutils.pipeline.retmask import RetMaskConfig, run_retmask

RUN = RetMaskConfig().changed({
    "instructions": 6, "tau": 0.0, "seed": 3, "detect.lengths": "240", "detect.depths": "0,1",
    "detect.needles": 1, "detect.max_new_tokens": 4, "responses.max_new_tokens": 5,
    "recipe.batch": 4, "recipe.per_device_batch": 2, "recipe.max_steps": 2, "recipe.lora_rank": 2})
ASKED = EvaluateConfig(datasets=("key_value",), lengths=(300,), samples=1)


@pytest.fixture
def jobs(tiny, monkeypatch):
    """Of a random model, half of whose heads count as retrieval heads."""
    select = HeadScores.select
    monkeypatch.setattr(HeadScores, "select", lambda scores, **_: select(scores, top_k=8))
    runs = [RUN.changed({"strategy": strategy}) for strategy in ("retmask", "sft")]
    return plan(Study({str(tiny): runs}, {str(tiny): [Evaluation(ASKED)]}))


def stages(jobs) -> list[str]:
    return [job.stage for job in jobs.values()]


def done(jobs, folder) -> set[str]:
    return {name for name in jobs if records.record_of(folder, name).exists()}


@pytest.mark.parametrize("profile", STUDIES)
def test_jobs_come_after_what_they_need(profile, tmp_path):
    jobs = plan(study_of(profile))
    seen = set()
    for name, job in jobs.items():
        assert seen.issuperset(job.needs) and name.startswith(f"{job.stage}/")
        seen.add(name)
    assert read(write(jobs, tmp_path)) == jobs


def test_what_has_changed_on_the_disk_is_another_job(tiny, tmp_path):
    """A model trained further in its folder, other instructions or needles in their files."""
    shutil.copytree(tiny, tmp_path / "model")
    files = {name: tmp_path / name for name in ("model/config.json", "mine.jsonl", "needles.jsonl")}
    for name in ("mine.jsonl", "needles.jsonl"):
        files[name].write_text("{}")
    run = RetMaskConfig(source=str(files["mine.jsonl"]), tau=0.1, strategy="retmask").changed(
        {"detect.needle_file": files["needles.jsonl"]})
    asked = EvaluateConfig(datasets=("key_value",), lengths=(256,), samples=1)
    model = str(tmp_path / "model")
    study = Study({model: [run]}, {model: [Evaluation(asked)]})
    before = plan(study)
    assert [*plan(study)] == [*before]
    other = {"model/config.json": {"fetch", "detect", "mask", "generate", "pairs", "train",
                                   "evaluate"},
             "mine.jsonl": {"generate", "pairs", "train"},
             "needles.jsonl": {"detect", "mask", "generate", "pairs", "train"}}
    for name, stages in other.items():
        text = files[name].read_text()
        files[name].write_text(text + "\n")
        changed = {before[job].stage for job in before if job not in plan(study)}
        assert changed == stages | {"evaluate"}, name
        before = plan(study)


def test_another_plan_is_another_file(tmp_path):
    """Two people may run studies of one profile in a cache that they share."""
    smoke = write(plan(study_of("smoke")), tmp_path)
    paper = write(plan(study_of("paper", {"places": "[]"})), tmp_path)
    assert smoke != paper and write(read(smoke), tmp_path) == smoke
    assert sorted(tmp_path.iterdir()) == sorted([smoke, paper])


def test_what_is_planned_for_the_book_is_in_its_study():
    jobs = plan(study_of("embedded"))
    trained = Counter((job.model, job.run.strategy, job.run.seed)
                      for job in jobs.values() if job.stage == "train")
    wanted = {(model, run.strategy, run.seed) for model in MODELS for run in planned_runs(model)}
    assert set(trained) == wanted
    assert {key for key, count in trained.items() if count > 1} == {
        ("tiny-llama", "retmask", seed) for seed in range(5)}  # with fewer instructions, too
    for name, job in jobs.items():
        if job.stage == "train":
            assert sum(name in other.needs for other in jobs.values()) >= 2, "its evaluations"


def test_strategies_share_jobs(jobs):
    """SFT trains on the chosen side of RetMask's pairs."""
    assert Counter(stages(jobs)) == {"fetch": 1, "detect": 1, "mask": 1, "generate": 2, "pairs": 1,
                                     "train": 2, "evaluate": 3}


def test_jobs_make_what_the_whole_method_uses(jobs, tmp_path, monkeypatch):
    """Up to the pairs, all that a run needs is there: it only trains and detects once more."""
    for name, job in jobs.items():
        if job.stage not in ("train", "evaluate"):
            records.carry_out(jobs, tmp_path, name, threads=1)
    made = {artifact.key for artifact in results.stored()}
    [model] = {job.model for job in jobs.values()}
    run = run_retmask(model, RUN)
    now = {artifact.key for artifact in results.stored()}
    assert now - made == {run.training, run.artifact.key}
    assert set(run.artifact.manifest["facts"]["step_seconds"]) == made | {run.training}
    [mask] = (name for name in jobs if name.startswith("mask/"))
    assert [tuple(head) for head in records._read(
        records.record_of(tmp_path, mask))["heads"]] == run.heads
    # Where there is no GPU, a model of the hub has another precision, and so another identity.
    monkeypatch.setattr(pairing, "detect_stored", None)
    records.carry_out(jobs, tmp_path, mask, threads=1)


def test_records_follow_what_is_stored(jobs, tmp_path):
    """Also what comes before a result that is there is no longer to be done, and only that."""
    records.settle(jobs, tmp_path)
    assert not done(jobs, tmp_path)
    [model] = {job.model for job in jobs.values()}
    run = run_retmask(model, RUN)
    records.settle(jobs, tmp_path)
    [first, second] = (name for name in jobs if name.startswith("train/"))
    assert done(jobs, tmp_path) == {first}, "the other training has the same jobs before it"
    run_retmask(model, RUN.changed({"strategy": "sft"}))
    records.settle(jobs, tmp_path)
    left = {name for name in jobs if name.startswith("evaluate/")}
    needed = {name for name in jobs if name.startswith("fetch/")}
    assert done(jobs, tmp_path) == set(jobs) - left - needed
    assert {os.stat(records.record_of(tmp_path, name)).st_mtime for name in (first, second)} == {0}
    shutil.rmtree(run.artifact.folder)
    records.settle(jobs, tmp_path)
    assert done(jobs, tmp_path) == {second}
