"""The whole method on a random model: what a run stores is what its steps give one by one."""

import json
import shlex
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from rmutils.__main__ import app
from rmutils.book.experiments.planned_runs import retrain_missing, stored_runs
from rmutils.core import results
from rmutils.core.errors import UserError
from rmutils.heads import DetectConfig, choose, detect
from rmutils.models import load_model
from rmutils.pipeline import retmask
from rmutils.pipeline.retmask import RetMaskConfig, half_of, run_command, run_retmask
from rmutils.preference.instructions import draw
from rmutils.preference.responses import Transformers, respond
from rmutils.preference.strategies import STRATEGIES
from rmutils.training import RECIPES
from rmutils.training.compute_backend import ComputeBackend, Launch

QUICK = RetMaskConfig().changed({
    "instructions": 6, "tau": 0.0, "seed": 3, "detect.lengths": "240", "detect.depths": "0,1",
    "detect.needles": 1, "detect.max_new_tokens": 4, "responses.max_new_tokens": 5,
    "recipe.batch": 4, "recipe.per_device_batch": 2, "recipe.max_steps": 2, "recipe.lora_rank": 2})


@pytest.fixture
def model(tiny, monkeypatch):
    """Half of its heads count as retrieval heads, whatever their scores."""
    select = retmask.HeadScores.select
    monkeypatch.setattr(retmask.HeadScores, "select",
                        lambda scores, **_: select(scores, top_k=8))
    return str(tiny)


def test_a_run_is_its_steps(model):
    run = run_retmask(model, QUICK)
    lm = load_model(model)
    before = detect(lm, QUICK.detect)
    np.testing.assert_array_equal(run.before.runs, before.runs)
    assert run.heads == choose(before, "retrieval", tau=0.0)
    responses = QUICK.responses.changed({"seed": 3})
    asked = draw("world", 6, seed=3).instructions
    whole = respond(Transformers(lm), asked, responses).set_index("id")
    masked = respond(Transformers(lm), asked,
                     responses.changed({"heads": tuple(sorted(run.heads))})).set_index("id")
    pairs = run.pairs.set_index("id")
    assert len(pairs) + sum(run.dropped.values()) == 6
    assert (pairs["chosen"] == whole.loc[pairs.index, "text"]).all()
    assert (pairs["rejected"] == masked.loc[pairs.index, "text"]).all()
    assert run.curve["step"].tolist() == [1, 2]
    np.testing.assert_allclose(run.curve["loss"][0], np.log(2), atol=1e-5)
    trained = load_model(run.training)
    np.testing.assert_array_equal(run.after.runs, detect(trained, QUICK.detect).runs)
    assert run.artifact.manifest["facts"]["pairs"] == len(pairs)


@pytest.mark.parametrize("count", [1, 2, 7, 8])
def test_halves(count):
    """Each head is in one half; the split depends on its number, not on the order of the heads."""
    heads = [(i % 3, i) for i in range(count)]
    for split in range(4):
        one, other = (half_of(heads, f"{split}{side}") for side in "ab")
        assert sorted([*one, *other]) == sorted(heads) and len(one) - len(other) == count % 2
        assert half_of(heads[::-1], f"{split}a") == one
    if count > 6:
        assert len({tuple(half_of(heads, f"{split}a")) for split in range(4)}) == 4


def test_half_of_the_heads_is_masked(model):
    """The chosen answers are those of the run that masks all; the rejected ones are not."""
    whole, half = run_retmask(model, QUICK), run_retmask(model, QUICK.changed({"half": "0b"}))
    assert half.heads == half_of(whole.heads, "0b") and len(half.heads) == 4
    assert half.artifact.label == "retmask-half0b-seed3"
    both = whole.pairs.merge(half.pairs, on="id")
    assert (both["chosen_x"] == both["chosen_y"]).all()
    assert (both["rejected_x"] != both["rejected_y"]).any()
    for wrong in ("b", "0c", "1"):
        with pytest.raises(UserError, match="half"):
            QUICK.changed({"half": wrong})


def test_weights_that_are_stored_nowhere_are_made_anew(model):
    run = run_retmask(model, QUICK)
    folder = results.find(run.training).folder
    before = load_file(folder / "adapter_model.safetensors")
    retrain_missing(model, [run.training])
    assert folder.stat().st_ino == results.find(run.training).folder.stat().st_ino, "were there"
    shutil.rmtree(folder)
    retrain_missing(model, ["train-0000000000000000"])
    assert results.find(run.training) is None, "nobody asked for these"
    retrain_missing(model, ["train-0000000000000000", run.training])
    after = load_file(results.find(run.training).folder / "adapter_model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_stopped_run_goes_on(model, monkeypatch):
    """Stopped before the last detection: neither answers nor training are done again."""
    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(retmask, "detect", stop)
        run_retmask(model, QUICK)
    with pytest.raises(UserError, match="is stored. Make it: `rmutils "):
        run_retmask(model, QUICK, compute="never")
    made = {a.key: a.manifest["environment"]["created"] for a in results.stored()}
    run = run_retmask(model, QUICK)
    assert set(run.artifact.manifest["facts"]["step_seconds"]) == set(made)
    again = run_retmask(model, QUICK, compute="never")
    pd.testing.assert_frame_equal(again.pairs, run.pairs)
    assert made.items() <= {a.key: a.manifest["environment"]["created"]
                            for a in results.stored()}.items()


@pytest.mark.parametrize("strategy", [
    "smaller-model", "win-lose-pair", "random-mask", "sft", "rc-removed", "rc-un-generated",
    "other author"])
def test_every_kind_of_strategy(model, strategy):
    changes = {"synthesizer": "tiny-llama"} if strategy == "other author" else {
        "strategy": strategy, **({"smaller": "tiny-llama"} if strategy == "smaller-model" else {})}
    run = run_retmask(model, QUICK.changed({**changes, "responses.thinking": False}))
    masks = strategy == "other author" or STRATEGIES[strategy].policy
    assert len(run.heads) == (8 if masks else 0)
    assert ("margin" in run.curve) == (strategy != "sft")
    recipe = results.find(run.training).manifest["config"]
    assert recipe["thinking"] == (not strategy.startswith("rc-"))


def test_command(model, tmp_path):
    """The command in the manifest makes the same run."""
    config = QUICK.changed({"strategy": "random-mask"})
    words = shlex.split(run_command(model, config))
    told = CliRunner().invoke(app, [*words[1:], "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["artifact"] == run_retmask(
        model, config, compute="never").artifact.name


def test_command_names_the_compute_backend(monkeypatch):
    """Without them the same words would make another result: by another engine, for example."""
    asked = []
    monkeypatch.setattr("rmutils.pipeline.retmask.run_retmask",
                        lambda *given, **how: asked.append((*given, how)) or exit(3))
    backend = ComputeBackend(engine="vllm", engines=4, launch=Launch(settings="fsdp", nodes=2),
                  judge="http://127.0.0.1:8000")
    words = shlex.split(run_command("tiny-llama", QUICK, backend))
    assert CliRunner().invoke(app, words[1:]).exit_code == 3
    assert asked.pop() == ("tiny-llama", QUICK, {"compute": "auto", "workers": 4,
                                                 "compute_backend": backend})


@pytest.mark.parametrize(("words", "message"), [
    (["-p", "compute_backend.engine", "mine"],
     "'mine' is no response backend. There are: transformers, "),
    (["-p", "recipe", "mine"], "recipe: 'mine' is no recipe: one of paper, embedded, smoke"),
    (["-p", "recipes.beta", "1"], "there is no recipes.beta. Did you mean recipe.beta?"),
    (["-p", "strategy", "mask"], "'mask' is no strategy. "),
    (["-p", "instructions", "0"], "instructions: expected at least 1, got '0'"),
    (["-p", "strategy", "smaller-model"], "the strategy smaller-model needs a smaller model"),
    (["--compute", "maybe"], "'--compute': 'maybe' is not one of"),
    (["--compute", "never"], "no result retmask-"),
])
def test_wrong_words(tiny, words, message):
    words = [*words, "-p", "detect.lengths", "240", "-p", "detect.depths", "0", "-p",
             "detect.needles", "1", "-p", "detect.max_new_tokens", "2"]
    told = CliRunner().invoke(app, ["retmask", str(tiny), *words])
    assert told.exit_code == 2 and message in told.stderr, told.output
    assert "Traceback" not in told.output


CONFIG = RetMaskConfig(
    instructions=3, tau=0.0, recipe=RECIPES["smoke"],
    detect=DetectConfig(lengths=(200,), depths=(0.5,), needles=2, max_new_tokens=20),
).changed({"responses.max_new_tokens": 8})


def test_found_missing_and_damaged(tiny):
    seeds = [CONFIG.changed({"seed": seed}) for seed in (0, 1)]
    found, missing = stored_runs(str(tiny), seeds)
    assert not found and len(missing) == 2
    made = run_retmask(str(tiny), seeds[1])
    (found,), (command,) = stored_runs(str(tiny), seeds)
    assert found.artifact.name == made.artifact.name and found.heads == made.heads
    assert command == missing[0] and "--seed" not in command and "--seed 1" in missing[1]
    made.artifact.path("curve.csv").write_text("step\n")
    with pytest.raises(UserError, match="curve.csv: content differs"):
        stored_runs(str(tiny), seeds)
