"""Stored abilities of a model before and after training: a random model, two steps."""

import shutil
import warnings
from dataclasses import replace

import pandas as pd
import pytest

from rmutils.book.chapters import general_abilities as module
from rmutils.book.chapters.general_abilities import evaluate_trainings, stored_abilities
from rmutils.core import results as artifacts
from rmutils.core.config import command_line
from rmutils.core.errors import NotStored, UserError
from rmutils.evaluation.abilities import evaluate_abilities, short_tasks
from rmutils.evaluation.abilities.ability_tasks import TASKS, tasks_of
from rmutils.evaluation.abilities.evaluate_abilities import (
    General,
    GeneralConfig,
    evaluate_general,
    evaluate_general_stored,
)
from rmutils.evaluation.abilities.sandbox import Outcome
from rmutils.heads import DetectConfig
from rmutils.models import load_model, loading
from rmutils.models.loading import base_of
from rmutils.models.trained import is_training
from rmutils.pipeline.retmask import RetMaskConfig, run_retmask
from rmutils.training import RECIPES

SMALL = GeneralConfig(samples=2, passages=2, passage_tokens=20, tasks=("arithmetic", "letters"))
QUICK = RetMaskConfig(
    instructions=3, tau=0.0, recipe=RECIPES["smoke"],
    detect=DetectConfig(lengths=(200,), depths=(0.5,), needles=2, max_new_tokens=4),
).changed({"responses.max_new_tokens": 4})
PLANNED = [QUICK.changed({"strategy": strategy}) for strategy in ("retmask", "sft")]


@pytest.fixture
def model(tiny, monkeypatch):
    for name, task in tasks_of("book").items():
        monkeypatch.setitem(TASKS._known, f"book/{name}", replace(
            task, max_new_tokens=min(task.max_new_tokens, 3)))
    monkeypatch.setattr(module, "planned_runs", lambda model: PLANNED)
    monkeypatch.setattr(module, "_CONFIGS", {"book": SMALL})
    yield str(tiny)
    evaluate_abilities._digest.cache_clear()


def test_what_was_made_with_a_sandbox_is_read_without_one(model, monkeypatch):
    """What is made without one says in its configuration what it was asked."""
    monkeypatch.setattr(short_tasks, "call", lambda *given: Outcome())
    config = SMALL.changed({"tasks": ("arithmetic", "code")})
    monkeypatch.setattr(evaluate_abilities, "missing", lambda: "")
    whole, artifact = evaluate_general_stored(model, config)
    monkeypatch.setattr(evaluate_abilities, "missing", lambda: "it is missing")
    with warnings.catch_warnings(action="error"):
        assert evaluate_general_stored(model, config)[1] == artifact
    with pytest.warns(match="code: skipped, because"):
        part, own = evaluate_general_stored(model, config, compute="always")
    assert own.manifest["config"]["tasks"] == ["arithmetic"] and own != artifact
    pd.testing.assert_frame_equal(part.samples, whole.samples[whole.samples["task"] != "code"])


def test_models_are_compared_on_the_tasks_that_all_were_asked(model, monkeypatch):
    def results(run, config):
        tasks = ["arithmetic"] if run else ["arithmetic", "code"]
        return General(pd.DataFrame({"task": tasks, "score": 0.0}), pd.DataFrame()), None

    monkeypatch.setattr(module, "stored_runs", lambda model, wanted: (["run"], []))
    samples = module._collect(model, results).samples
    assert samples["task"].tolist() == 3 * ["arithmetic"]


def test_a_model_is_asked_once(model, monkeypatch):
    with pytest.raises(NotStored, match="Make it: `rmutils abilities .*tiny model'.*--samples 2"):
        evaluate_general_stored(model, SMALL, compute="never")
    first, artifact = evaluate_general_stored(model, SMALL)
    direct = evaluate_general(load_model(model), SMALL)
    pd.testing.assert_frame_equal(first.samples, direct.samples)
    assert artifact.manifest["facts"] == {"questions": 4, "passages": 0}
    assert not artifact.problems() and not list(artifact.folder.glob(".*"))
    monkeypatch.setattr(loading, "load_model", None)
    again, same = evaluate_general_stored(model, SMALL)
    assert same == artifact
    pd.testing.assert_frame_equal(again.samples, first.samples)
    for other in (SMALL.changed({"seed": 1}), SMALL.changed({"samples": 3})):
        with pytest.raises(NotStored):
            evaluate_general_stored(model, other, compute="never")
    with pytest.raises(NotStored, match="--base"):
        evaluate_general_stored(model, SMALL, base=model, compute="never")
    # other questions under the same settings are another result
    monkeypatch.setitem(TASKS._known, "book/letters", replace(
        TASKS["book/written letters"], name="letters"))
    evaluate_abilities._digest.cache_clear()
    with pytest.raises(NotStored):
        evaluate_general_stored(model, SMALL, compute="never")


def test_several_workers_give_the_files_of_one(cache):
    """Byte for byte, the passages too."""
    config = GeneralConfig(samples=6, passages=3, passage_tokens=40)
    _, alone = evaluate_general_stored("tiny-llama-small", config, base="tiny-llama")
    contents = {path.name: path.read_bytes() for path in alone.folder.glob("*.parquet")}
    assert len(contents) == 2
    shutil.rmtree(alone.folder)
    _, shared = evaluate_general_stored("tiny-llama-small", config, base="tiny-llama",
                                        workers=2)
    assert shared.name == alone.name and shared.folder == alone.folder
    assert {path.name: path.read_bytes()
            for path in shared.folder.glob("*.parquet")} == contents


def test_trainings_one_by_one(model, monkeypatch):
    """Missing runs, then missing results, then all, also without the weights, which do not ship."""
    found = stored_abilities(model)
    assert found.samples.empty and len(found.missing) == 3
    runs = [run_retmask(model, config) for config in PLANNED]
    found = stored_abilities(model)
    assert found.missing == [command_line("abilities", model, "--trainings")]

    made = evaluate_trainings(model)
    assert not made.missing
    assert list(made.artifacts) == [("before", 0), ("retmask", 0), ("sft", 0)]
    assert {a.manifest["command"] for a in made.artifacts.values()} == {*found.missing}
    trained = load_model(runs[0].training, base=model)
    direct = evaluate_general(trained, SMALL, base=load_model(model))
    rows = made.samples.query("strategy == 'retmask'")[direct.samples.columns]
    pd.testing.assert_frame_equal(rows.reset_index(drop=True), direct.samples)
    drift = made.drift.query("strategy == 'retmask'")[direct.drift.columns].reset_index(drop=True)
    pd.testing.assert_frame_equal(drift, direct.drift)
    assert set(made.drift["strategy"]) == {"retmask", "sft"} and (drift["from_base"] > 0).all()

    for run in runs:
        shutil.rmtree(artifacts.find(run.training).folder)
    without = stored_abilities(model)
    pd.testing.assert_frame_equal(without.samples, made.samples)
    assert without.artifacts == made.artifacts
    with pytest.raises(UserError, match=f"{runs[0].training} are not .*`rmutils retmask"):
        evaluate_general_stored(runs[0].training, SMALL)
    # weights that are gone are trained again from the stored pairs, and are the same
    shutil.rmtree(made.artifacts["sft", 0].folder)
    again = evaluate_trainings(model)
    assert artifacts.find(runs[1].training) and not artifacts.find(runs[0].training)
    pd.testing.assert_frame_equal(again.samples, made.samples)
    pd.testing.assert_frame_equal(again.drift, made.drift)


def test_a_training_by_its_name(model, monkeypatch, tmp_path):
    run = run_retmask(model, PLANNED[0])
    assert is_training(run.training) and not is_training(model) and not is_training("train-x")
    named = evaluate_general_stored(run.training, SMALL, base=model)
    assert named[1].manifest["command"].startswith(f"rmutils abilities {run.training} ")
    assert "--base" not in named[1].manifest["command"]
    with pytest.raises(UserError, match="began with a folder called tiny model.*--base"):
        evaluate_general_stored(run.training, SMALL)
    folder = shutil.copytree(artifacts.find(run.training).folder, tmp_path / "trained")
    with pytest.raises(UserError, match="trained began with a folder called tiny model.*--base"):
        evaluate_general_stored(str(folder), SMALL)
    record = artifacts.find(run.training).path("training.json")
    record.write_text(record.read_text().replace('"tiny model"', '"tiny-llama"'))
    monkeypatch.setattr(loading, "stored_training", lambda name: artifacts.Artifact(record.parent))
    assert base_of(run.training) == "tiny-llama"
    monkeypatch.undo()
    with pytest.raises(UserError, match="train-0123456789abcdef are not stored on this machine"):
        evaluate_general_stored("train-0123456789abcdef", SMALL)
