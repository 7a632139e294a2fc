"""What a run will cost, said beforehand, beside what runs really cost.

`data/timings.json` holds runs that were measured. Each is foretold from the others of its notebook.
With RMUTILS_MEASURE=1 every notebook is run and measured here, too.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace

import nbformat
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_notebook
from typer.testing import CliRunner

from rmutils.cli import app
from rmutils.core import paths
from rmutils.core import results as artifacts
from rmutils.core.errors import UserError
from rmutils.estimate import Costs, Measured, estimate, load_costs, notebook_costs
from rmutils.estimate.notebook_costs import SLOWER, START, TIMINGS, Part, weight, work_seconds
from rmutils.site import notebooks
from rmutils.site.notebooks import run_notebook
from rmutils.site.parameters import check_parameters, read_parameters
from tests.clock import least

NOTEBOOKS = {p.stem: p for p in sorted(paths.NOTEBOOKS.glob("*.ipynb"))}
SMOKE = yaml.safe_load((paths.NOTEBOOKS / "profiles.yaml").read_text(encoding="utf-8"))["smoke"]
RUNS = [Measured(**run) for run in json.loads(TIMINGS.read_text(encoding="utf-8"))["runs"]]


def predicted(costs: Costs, run: Measured) -> float:
    values = costs.own | run.given
    return costs.rates[START] + sum(costs.rates[part.kind] * part.units(values)
                                    for part in costs.computed(values, stored=run.stored))


@pytest.mark.parametrize("number", range(len(RUNS)), ids=lambda number: RUNS[number].notebook)
def test_measured_runs_are_foretold_by_the_others_within_a_factor_of_2(number):
    run = RUNS[number]
    check_parameters(NOTEBOOKS[run.notebook], run.given)
    costs = load_costs(NOTEBOOKS[run.notebook])
    others = tuple(other for other in costs.measured if other != run)
    costs = replace(costs, measured=others or costs.measured)
    assert run.seconds / 2 <= predicted(costs, run) <= 2 * run.seconds
    assert run.memory / 2 <= estimate(costs, run.given).memory <= 2 * run.memory


def test_every_notebook_is_known_and_most_by_several_runs():
    assert {run.notebook for run in RUNS} == set(NOTEBOOKS)
    names = [run.notebook for run in RUNS]
    assert len({name for name in names if names.count(name) > 1}) > len(NOTEBOOKS) / 3
    for name, path in NOTEBOOKS.items():
        declared, costs = read_parameters(path), load_costs(path)
        for part in costs.parts:
            assert set(part.depends) | ({part.when} - {None}) <= set(declared), part.what
            for given in ({}, SMOKE.get(name, {})):
                assert part.units(costs.own | given) >= 0


@pytest.mark.parametrize(("name", "what", "stage", "seconds"), [
    ("01_preliminaries", "detection on the large grid", "detect", lambda m: m["facts"].get(
        "case_seconds") if len(m["config"]["lengths"]) == 8 else None),
    ("02_masking_sweep", "the sweep of the large model", "masking-sweep",
     lambda m: m["seconds"] if "gguf" in m["inputs"]["model"] else None),
    ("08_failure_modes", "responses of the large model", "failure-modes", lambda m: m["seconds"]),
])
def test_long_runs_of_the_past_were_foretold_within_a_factor_of_2(name, what, stage, seconds):
    """Those whose results come with the book; no recorded run is of their size."""
    [took] = filter(None, (
        seconds(a.manifest) for a in artifacts.stored(stage) if a.shipped))
    costs = load_costs(NOTEBOOKS[name])
    part = next(part for part in costs.parts if part.what == what)
    assert took / 2 <= part.units(costs.own) * costs.rates[part.kind] <= 2 * took


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """Two parameters that multiply, and one that says whether to compute; an empty cache."""
    monkeypatch.setenv("RMUTILS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setattr(notebooks, "NOTEBOOKS", tmp_path / "notebooks")
    cell = ("from typing import Literal\nlengths: list[int] = [100, 100]  # of it\n"
            "cases: int = 10  # of it\nseed: int = 0  # of it\n"
            'compute: Literal["auto", "always", "never"] = "auto"  # of it')
    path = tmp_path / "notebooks" / "one.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell(cell, metadata={"tags": ["parameters"]})]),
                   path)
    return path


PART = Part(what="the cases", kind="cases", work="sum(lengths) * cases", when="compute",
            also=("seed",))


def known(notebook, *parts: Part) -> Costs:
    """Runs that took 5 s, and 10 ms for each unit of work."""
    runs = [Measured(notebook="one", given={"cases": cases}, seconds=5 + 2 * cases,
                     memory=10**9, disk=10**7) for cases in (1, 10, 100)]
    return Costs(notebook, parts or (PART,), tuple(runs))


def test_seconds_per_unit_are_found_in_the_runs(notebook):
    costs = known(notebook)
    assert costs.rates[START] == pytest.approx(5, rel=0.05)
    assert costs.rates["cases"] == pytest.approx(0.01, rel=0.05)
    found = estimate(costs, {"lengths": [1000], "cases": 20}, slowness=3)
    assert found.seconds == pytest.approx(3 * (5 + 200), rel=0.05)
    assert found.memory == 10**9 and found.disk >= 10**7
    assert "sum(lengths) * cases = 2e+04 units" in found.steps[1].why
    assert "10 times" in found.steps[1].why


def test_what_is_stored_or_not_wanted_costs_nothing(notebook):
    costs = known(notebook)

    def spent(**given) -> float:
        return estimate(costs, given).steps[1].seconds

    assert spent(compute="never") == 0 < spent(compute="auto") == spent(compute="always")
    notebooks._remember(notebook, costs.own | {"compute": "never"})
    assert spent() > 0, "nothing was computed"
    run_notebook(notebook, notebook.parent.parent / "out.ipynb", {"cases": 20})
    assert spent(cases=20) == 0 < spent(cases=20, compute="always")
    for other in ({"cases": 21}, {"cases": 20, "seed": 1}):
        assert spent(**other) > 0
    assert "earlier run" in estimate(costs, {"cases": 20}).steps[1].why


def test_results_that_come_with_the_book_cost_nothing(notebook):
    costs = known(notebook, PART.changed({"shipped": True}))
    assert estimate(costs, {}).steps[1].seconds == 0 < estimate(costs, {"seed": 1}).steps[1].seconds


def test_seconds_of_a_part_that_no_run_computes_are_those_it_states(notebook):
    stated = Part(what="hours", kind="hours", work="cases", when="compute", seconds=3600)
    found = estimate(known(notebook, stated), {"cases": 5})
    assert found.steps[1].seconds == pytest.approx(1800)


def test_larger_models_cost_more_time_memory_and_disk():
    assert weight("tiny-qwen3") == 1
    assert weight("smollm2-135m") == SLOWER
    assert weight("llama-3.1-8b-instruct") == pytest.approx(SLOWER * 8e9 / 135e6)
    costs = load_costs(NOTEBOOKS["01_preliminaries"])
    small, large = (estimate(costs, {"model": name, "compute": "always"})
                    for name in ("smollm2-135m", "qwen3-8b"))
    assert large.seconds > 20 * small.seconds
    assert large.memory > small.memory + 30e9 and large.disk > 15e9


def test_slower_machine_is_noticed(monkeypatch):
    ticks = iter(range(1000))
    assert work_seconds(lambda: next(ticks) * 3.5) == 3.5
    reference = json.loads(TIMINGS.read_text(encoding="utf-8"))["work_seconds"]
    monkeypatch.setattr(notebook_costs, "work_seconds", lambda clock: 9 * reference)
    assert notebook_costs.slowness() == pytest.approx(3)


def test_measured_work_keeps_to_one_core():
    """BLAS takes several for larger products: their waiting would count as work."""
    work_seconds()
    everything, this_thread = time.process_time(), time.thread_time()
    work_seconds()
    assert time.process_time() - everything < 1.2 * (time.thread_time() - this_thread)


def test_notebook_without_record_is_refused(notebook):
    with pytest.raises(UserError, match="nothing is known"):
        load_costs(notebook)


def test_command_line_says_time_memory_disk_and_why(tmp_path, monkeypatch):
    monkeypatch.setenv("RMUTILS_CACHE", str(tmp_path))
    call = CliRunner().invoke
    words = ["estimate", "04_reasoning_ablation", "-p", "instructions", "640"]
    shown = call(app, words)
    assert shown.exit_code == 0, shown.output
    for text in ("time ", "memory ", "disk ", START, "10 * instructions = ", "data/timings.json"):
        assert text in shown.output
    found = json.loads(call(app, [*words, "--json"]).output)
    assert found["seconds"] == pytest.approx(sum(step["seconds"] for step in found["steps"]))
    assert call(app, ["estimate", "04_reasoning_ablation", "-p", "instruction", "1"]).exit_code == 2
    assert call(app, ["estimate", "no_such"]).exit_code == 2


@pytest.mark.parametrize("name", NOTEBOOKS if "RMUTILS_MEASURE" in os.environ else ["audit"])
def test_run_takes_what_was_said_beforehand(name, tmp_path, monkeypatch):
    """Processor seconds on one core, so that other work on this machine does not count.

    Three tries, for on a shared machine even those vary by more than 2 from minute to minute.
    """
    if (models := paths.cache_dir() / "models").exists():
        (tmp_path / "models").symlink_to(models)
    monkeypatch.setenv("RMUTILS_CACHE", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    given = check_parameters(NOTEBOOKS[name], SMOKE.get(name, {}))

    def factor() -> float:
        said = estimate(load_costs(NOTEBOOKS[name]), given,
                        slowness=notebook_costs.slowness(time.process_time))
        took = run_notebook(NOTEBOOKS[name], tmp_path / "out.ipynb", given).metadata["rmutils"]
        return max(said.seconds / took["cpu_seconds"], took["cpu_seconds"] / said.seconds)

    assert least(factor, 2, tries=3) <= 2
