"""Predicted costs of runs, compared with what runs really cost.

`data/timings.json` holds runs that were measured.
"""

import json
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import nbformat
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_notebook
from typer.testing import CliRunner

from rmutils.__main__ import app
from rmutils.book.jobs.notebook_costs import (
    EXPERIMENTS,
    START,
    Costs,
    Measured,
    Part,
    estimate,
    load_costs,
    seconds_by_weight,
)
from rmutils.book.site.parameters import check_parameters, read_parameters
from rmutils.core import paths
from rmutils.core import results as artifacts
from rmutils.core.errors import UserError
from rmutils.core.experiment import Runs
from rmutils.heads import DetectConfig
from rmutils.models import costs as model_costs
from rmutils.models.costs import (
    DETECTION,
    SLOWER,
    TIMINGS,
    detection_seconds,
    memory,
    weight,
    work_seconds,
)

NOTEBOOKS = {p.stem: p for p in sorted(paths.NOTEBOOKS.glob("*.ipynb"))}
SMOKE = yaml.safe_load((paths.NOTEBOOKS / "profiles.yaml").read_text(encoding="utf-8"))["smoke"]
RUNS = [Measured(**run) for run in json.loads(TIMINGS.read_text(encoding="utf-8"))["runs"]]


OTHERS = [run for run in RUNS if run.given]
"""Runs with other parameters than those for which the seconds of the parts are recorded."""


def test_runs_with_other_parameters_are_predicted_within_a_factor_of_2():
    for run in OTHERS:
        check_parameters(NOTEBOOKS[run.notebook], run.given)
        found = estimate(load_costs(NOTEBOOKS[run.notebook]), run.given)
        assert run.seconds / 2 <= found.seconds <= 2 * run.seconds, run


def test_memory_of_a_run_is_predicted_by_others_within_a_factor_of_2():
    for run in RUNS:
        costs = load_costs(NOTEBOOKS[run.notebook])
        if others := tuple(other for other in costs.measured if other != run):
            found = estimate(replace(costs, measured=others), run.given)
            assert run.memory / 2 <= found.memory <= 2 * run.memory, run


def test_every_notebook_is_known_and_most_by_several_runs():
    assert {run.notebook for run in RUNS} == set(NOTEBOOKS)
    names = [run.notebook for run in RUNS]
    assert len({name for name in names if names.count(name) > 1}) > len(NOTEBOOKS) / 3
    for name, path in NOTEBOOKS.items():
        declared, costs = read_parameters(path), load_costs(path)
        for part in costs.parts:
            assert set(part.depends) | ({part.when} - {None}) <= set(declared), part.what
            for given in ({}, SMOKE.get(name, {})):
                assert part.units(costs.own | given) >= 0 < part.units(costs.own)


@pytest.mark.parametrize(("name", "what", "stage", "seconds"), [
    ("01_preliminaries", "detection on the large grid", "detect", lambda m: m["facts"].get(
        "case_seconds") if len(m["config"]["lengths"]) == 8 else None),
    ("08_failure_modes", "responses of the large model", "failure-modes", lambda m: m["seconds"]),
])
def test_long_runs_of_the_past_were_foretold_within_a_factor_of_2(name, what, stage, seconds):
    """Those whose results come with the book; no recorded run is of their size."""
    [took] = filter(None, (
        seconds(a.manifest) for a in artifacts.stored(stage)
        if a.shipped and "policies" not in a.manifest["config"]))
    part = next(part for part in load_costs(NOTEBOOKS[name]).parts if part.what == what)
    assert took / 2 <= part.seconds <= 2 * took


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """Two parameters that multiply, and one that says whether to compute; an empty cache."""
    monkeypatch.setenv("RMUTILS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "notebooks").mkdir()
    cell = ("from typing import Literal\nlengths: list[int] = [100, 100]  # of it\n"
            "cases: int = 10  # of it\nseed: int = 0  # of it\n"
            'compute: Literal["auto", "always", "never"] = "auto"  # of it')
    path = tmp_path / "notebooks" / "one.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell(cell, metadata={"tags": ["parameters"]})]),
                   path)
    return path


CASES = Part(what="the cases", seconds=20, by="sum(lengths) * cases", when="compute")


def known(notebook, *parts: Part) -> Costs:
    run = Measured(notebook="one", seconds=25, memory=10**9, disk=10**7)
    return Costs(notebook, (Part(seconds=5), *(parts or [CASES])), (run,))


def test_seconds_grow_with_the_counts(notebook):
    costs = known(notebook)
    found = estimate(costs, {"lengths": [1000], "cases": 20}, slowness=3)
    assert found.seconds == pytest.approx(3 * (5 + 20 * 10))
    assert found.memory == 10**9 and found.disk >= 10**7
    assert "times 10 for sum(lengths) * cases" in found.steps[1].why
    assert [step.what for step in found.steps] == [START, "the cases"]


def test_what_is_not_wanted_costs_nothing(notebook):
    costs = known(notebook)

    def spent(**given) -> float:
        return estimate(costs, given).steps[1].seconds

    assert spent(compute="never") == 0 < spent(compute="auto") == spent(compute="always")


def test_results_that_come_with_the_book_cost_nothing(notebook):
    costs = known(notebook, CASES.changed({"shipped": True, "also": ("seed",)}))
    assert estimate(costs, {}).steps[1].seconds == 0 < estimate(costs, {"seed": 1}).steps[1].seconds


def test_planned_runs_cost_what_the_stored_ones_took():
    """Those of half-learned models come with the book; their manifests have the seconds."""
    manifests = (paths.SHIPPED_ARTIFACTS / "half-learned").glob("*/*/manifest.json")
    took = sum(json.loads(path.read_text())["seconds"] for path in manifests)
    costs = load_costs(NOTEBOOKS["09_data_and_training"])

    def planned(**given) -> float:
        return sum(step.seconds for step in estimate(costs, given).steps
                   if "data/plans" in step.what)

    assert planned() == planned(compute_half="auto") == 0 < took
    assert planned(compute_half="always") == pytest.approx(took)


def test_runs_on_an_accelerator_tell_only_where_there_are_no_others():
    """SmolLM2 takes `SLOWER` times as long as a teaching model."""
    def runs(**seconds):
        results = {machine: SimpleNamespace(manifest={
            "seconds": took, "facts": {}, "environment": {"hardware": machine}})
            for machine, took in seconds.items()}
        models = dict.fromkeys(results, "tiny-llama") | {"4 cores": "smollm2-135m"}
        return Runs((), {key: SimpleNamespace(model=name) for key, name in models.items()}, results,
                    {}, {}, [])

    gpu = "16 cores, 1 x NVIDIA H100"
    both = runs(**{gpu: 1, "2 cores": 60, "4 cores": 60 * SLOWER})
    assert seconds_by_weight(both) == (pytest.approx(60), "")
    assert seconds_by_weight(runs(**{gpu: 10})) == (10, f" (on {gpu})")
    assert seconds_by_weight(runs()) == (0, "")


def test_experiments_are_computed_by_parameters_of_their_notebooks():
    for experiment in EXPERIMENTS:
        parameter = read_parameters(NOTEBOOKS[experiment.notebook])[experiment.parameter]
        assert parameter.default == "never"


def test_larger_models_cost_more_time_memory_and_disk():
    assert weight("tiny-qwen3") == 1
    assert weight("smollm2-135m") == SLOWER
    assert weight("llama-3.1-8b-instruct") == pytest.approx(SLOWER * 8e9 / 135e6)
    costs = load_costs(NOTEBOOKS["01_preliminaries"])
    small, large = (estimate(costs, {"model": name, "compute": "always"})
                    for name in ("smollm2-135m", "qwen3-8b"))
    assert large.seconds > 20 * small.seconds
    assert large.memory > small.memory + 30e9 and large.disk > 15e9


def test_a_detection_costs_what_chapter_1_says():
    """`rmutils models list` has no notebooks to look into; its grid is the default one."""
    costs, grid = load_costs(NOTEBOOKS["01_preliminaries"]), DetectConfig()
    [part] = (p for p in costs.parts if p.what == "detection on the small grid")
    asked = {"lengths": list(grid.lengths), "depths": list(grid.depths)}
    grown = part.units(costs.own | asked) / part.units(costs.own)
    assert detection_seconds("smollm2-135m") == pytest.approx(part.seconds * grown, rel=0.02)
    assert detection_seconds("tiny-llama") == DETECTION
    recorded = next(run for run in RUNS if run.notebook == "01_preliminaries" and not run.given)
    assert memory("smollm2-135m") == pytest.approx(recorded.memory, rel=0.2)


def test_slower_machine_is_noticed(monkeypatch):
    ticks = iter(range(1000))
    assert work_seconds(lambda: next(ticks) * 3.5) == 3.5
    reference = json.loads(TIMINGS.read_text(encoding="utf-8"))["work_seconds"]
    monkeypatch.setattr(model_costs, "work_seconds", lambda: 9 * reference)
    assert model_costs.slowness() == pytest.approx(3)


def test_notebook_without_record_is_refused(notebook):
    with pytest.raises(UserError, match="nothing is known"):
        load_costs(notebook)


def test_command_line_says_time_memory_disk_and_why(tmp_path, monkeypatch):
    monkeypatch.setenv("RMUTILS_CACHE", str(tmp_path))
    call = CliRunner().invoke
    words = ["estimate", "04_reasoning_ablation", "-p", "instructions", "640"]
    shown = call(app, words)
    assert shown.exit_code == 0, shown.output
    for text in ("time ", "memory ", "disk ", START, "10 * instructions", "data/timings.json"):
        assert text in shown.output
    found = json.loads(call(app, [*words, "--json"]).output)
    assert found["seconds"] == pytest.approx(sum(step["seconds"] for step in found["steps"]))
    assert call(app, ["estimate", "04_reasoning_ablation", "-p", "instruction", "1"]).exit_code == 2
    assert call(app, ["estimate", "no_such"]).exit_code == 2


@pytest.mark.parametrize(("notebook", "changed", "told"), [
    ("01_preliminaries", {"model": "tiny-qwen"}, "Did you mean tiny-qwen3"),
    ("01_preliminaries", {"model": "tiny-qwen3", "lengths": [4096]}, "the window of tiny-qwen3"),
    ("01_preliminaries", {"model": "tiny-qwen3"}, None), ("your_own_model", {}, None)])
def test_a_run_that_cannot_be_is_refused(notebook, changed, told):
    costs = load_costs(paths.NOTEBOOKS / f"{notebook}.ipynb")
    with pytest.raises(UserError, match=told) if told else nullcontext():
        estimate(costs, changed)
