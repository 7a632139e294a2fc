"""Snapshots: the search goes on where it was stopped; runs are collected."""

import functools
import sys

import pandas as pd
import pytest

from rmutils.book.experiments import planned_runs as module
from rmutils.book.experiments.planned_runs import NoSnapshot, find_snapshot
from rmutils.book.jobs.plan import plan
from rmutils.book.jobs.studies import Study
from rmutils.core.errors import UserError
from rmutils.heads import DetectConfig
from rmutils.models.teaching import TeachingRecipe, pretraining, steps_taken, train
from rmutils.pipeline.retmask import RetMaskConfig, run_retmask
from rmutils.preference.responses import BACKENDS
from rmutils.preference.strategies import STRATEGIES
from rmutils.training.compute_backend import ComputeBackend
from tests.pipeline.test_retmask import QUICK
from tests.test_interface import snippets

RECIPE = TeachingRecipe(family="llama", steps=40, num_hidden_layers=2, tokens_per_step=256)
DETECT = DetectConfig(lengths=(200,), depths=(0.5,), needles=2, max_new_tokens=4)


@pytest.fixture
def looks(monkeypatch):
    """The share of needles at each step is the step in hundredths; the steps looked at."""
    seen = []

    def look(lm, config):
        seen.append(steps_taken(seen_folder[0]))
        return pd.DataFrame({"success": [seen[-1] / 100]})

    seen_folder = []
    real = train
    monkeypatch.setattr(module, "train", lambda recipe, home, until: (
        seen_folder.append(home), real(recipe, home, until=until))[1])
    monkeypatch.setattr(module, "find_needles", look)
    monkeypatch.setattr(pretraining, "build_tokenizer",
                        functools.cache(pretraining.build_tokenizer))
    return seen


def search(home, found):
    return find_snapshot("Toy", RECIPE, home, DETECT, every=2, found=found)


def test_the_first_look_in_the_range_is_the_snapshot(looks, tmp_path):
    assert search(tmp_path / "m", (0.03, 0.07)) == (tmp_path / "m", 4)
    assert looks == [2, 4] and steps_taken(tmp_path / "m") == 4
    assert search(tmp_path / "m", (0.03, 0.07))[1] == 4 and looks == [2, 4, 4]
    with pytest.raises(NoSnapshot, match="Toy never found 0% to 1% of the needles"):
        search(tmp_path / "other", (0.0, 0.01))


def test_a_stopped_search_goes_on_from_between_two_looks(looks, tmp_path):
    train(RECIPE, tmp_path / "m", until=3)  # a checkpoint after the look at step 2
    assert search(tmp_path / "m", (0.0, 0.07))[1] == 4 and looks == [4]


SNIPPETS = snippets("CONTRIBUTING.md")
STRATEGY = SNIPPETS["Add a strategy for rejected responses"]
BACKEND = SNIPPETS["Add a response backend"]


@pytest.fixture(params=["decorator", "entry point"])
def outside(request, tmp_path, monkeypatch):
    """Both, added by code that has run, or by a package that is installed."""
    for registry in (STRATEGIES, BACKENDS):
        monkeypatch.setattr(registry, "_known", dict(registry))
    if request.param == "decorator":
        exec(STRATEGY, {"__name__": "mine"})
        exec(BACKEND, {"__name__": "mine"})
        return
    folder = tmp_path / "site"
    (folder / "toy-1.dist-info").mkdir(parents=True)
    (folder / "toy-1.dist-info" / "METADATA").write_text("Name: toy\nVersion: 1\n")
    (folder / "toy-1.dist-info" / "entry_points.txt").write_text(
        "[rmutils.strategies]\ntoy = toy_strategy\n[rmutils.backends]\ntoy = toy_backend\n")
    (folder / "toy_strategy.py").write_text(STRATEGY)
    (folder / "toy_backend.py").write_text(BACKEND)
    monkeypatch.syspath_prepend(folder)
    for registry, name in (STRATEGIES, "toy_strategy"), (BACKENDS, "toy_backend"):
        monkeypatch.setattr(registry, "_loaded", False)
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_a_whole_run(outside, tiny):
    config = QUICK.changed({"strategy": "first-layer"})
    run = run_retmask(str(tiny), config, compute_backend=ComputeBackend(engine="echo"))
    heads = run.before.mean.shape[1]
    assert run.heads == [(0, head) for head in range(heads)]
    assert run.pairs["chosen"].str.startswith("0 masked: ").all()
    assert run.pairs["rejected"].str.startswith(f"{heads} masked: ").all()
    assert run.artifact.manifest["inputs"]["engine"] == "echo 1"


def test_a_study(outside):
    jobs = plan(Study({"tiny-llama": [RetMaskConfig(strategy="first-layer", tau=0.1)]},
                      {"tiny-llama": []}))
    assert [name.split("/")[0] for name in jobs] == [
        "fetch", "detect", "mask", "generate", "generate", "pairs", "train"]


def test_what_nobody_added():
    with pytest.raises(UserError, match="'first-layr' is no|no strategy"):
        RetMaskConfig().changed({"strategy": "first-layr"})
    with pytest.raises(UserError, match="there is a strategy 'retmask' already"):
        STRATEGIES.add("retmask", STRATEGIES["sft"])
