"""A strategy and a response backend from outside this project take part in a whole run."""

import sys

import pytest

from rmutils.book.jobs.plan import plan
from rmutils.book.jobs.studies import Study
from rmutils.core.errors import UserError
from rmutils.pipeline.retmask import RetMaskConfig, run_retmask
from rmutils.preference.responses import BACKENDS
from rmutils.preference.strategies import STRATEGIES
from rmutils.training.compute_backend import ComputeBackend
from tests.pipeline.test_retmask import QUICK
from tests.test_interface import snippets

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
    for registry, module in (STRATEGIES, "toy_strategy"), (BACKENDS, "toy_backend"):
        monkeypatch.setattr(registry, "_loaded", False)
        monkeypatch.delitem(sys.modules, module, raising=False)


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
