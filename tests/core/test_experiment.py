"""Experiments: planned runs against what is stored, a kill, and plans that are refused."""

import hashlib
import json
import os
from functools import partial
from types import SimpleNamespace

import pandas as pd
import pytest

from rmutils.core import experiment
from rmutils.core.config import Config
from rmutils.core.errors import NotStored, UserError
from rmutils.core.experiment import Experiment, LeftOut, Plan, Run, load_plan
from rmutils.core.journal import Journal
from rmutils.core.results import JOURNAL, write_tables
from tests.clock import PATIENCE, forked
from tests.test_interface import snippets

PLAN = Plan("toy", "0" * 16, {"models": ["one", "two"], "seeds": 2})


class Inner(Config):
    seed: int


class Toy(Config):
    model: str
    inner: Inner


def planned(plan):
    return [Toy(model=model, inner=Inner(seed=seed))
            for model in plan.content["models"] for seed in range(plan.content["seeds"])]


def make(run, folder):
    write_tables({"squares": pd.DataFrame({"x": range(3)}).assign(y=run.inner.seed**2)}, folder)
    return {"weights": run.model}


def toy(**changed):
    declared = {"name": "toy", "config": Toy, "plan": PLAN, "planned": planned, "make": make,
                "keys": ("model", "inner.seed"), "label": lambda run: f"seed{run.inner.seed}",
                "inputs": lambda run: {"weights": run.model * 2},
                "notebook": "99_toys", "parameter": "compute"}
    return Experiment(**declared | changed)


def test_runs_are_computed_in_the_order_of_the_plan_and_then_looked_up(cache):
    calls = []
    counted = toy(make=lambda run, folder: calls.append(counted.key(run)) or make(run, folder))
    nothing = counted.collect()
    assert {*nothing.missing.values()} == {"rmutils run 99_toys -p compute auto"}
    assert len(nothing.missing) == 4 and not nothing.stored
    with pytest.raises(NotStored, match="99_toys -p compute auto"):
        counted.obtain(planned(PLAN)[0], compute="never")
    counted.obtain(planned(PLAN)[3])
    assert len(counted.collect().missing) == 3
    runs = counted.collect(compute="auto")
    assert calls == [("two", 1), ("one", 0), ("one", 1), ("two", 0)] and not runs.missing
    assert [*runs.stored] == [("one", 0), ("one", 1), ("two", 0), ("two", 1)]
    table = runs.table("squares")
    assert table.groupby(["model", "seed"])["y"].unique().str[0].to_dict() == {
        (model, seed): seed**2 for model in ("one", "two") for seed in (0, 1)}
    assert sorted(runs.seconds) == sorted(json.loads(path.read_text())["seconds"]
                                          for path in cache.rglob("manifest.json"))
    assert {a.manifest["facts"]["plan"] for a in runs.artifacts} == {PLAN.digest}
    assert [a.name.rpartition("-")[0] for a in runs.artifacts][:2] == [
        "toy/one/seed0", "toy/one/seed1"]


def test_a_model_is_left_out_with_its_reason_whether_that_is_stored_or_raised(cache):
    def raising(run, folder):
        if run.model == "one":
            raise LeftOut("one is too small.")
        return make(run, folder)

    def storing(run, folder):
        return make(run, folder) | ({"left_out": "two is too large."} if run.model == "two" else {})

    runs = toy(make=raising).collect(compute="auto")
    assert [*runs.stored] == [("two", 0), ("two", 1)] and runs.deviations == ["one is too small."]
    other = toy(name="other", make=storing)
    assert other.collect(compute="auto").left_out == other.collect().left_out == {
        "two": "two is too large."}


def test_a_model_beside_its_configuration(cache):
    pairs = toy(planned=lambda plan: [Run("one", Inner(seed=3))], keys=("model", "config.seed"),
                label=lambda run: "it", make=lambda run, folder: write_tables(
                    {"rows": pd.DataFrame({"x": [run.config.seed]})}, folder) or {},
                inputs=lambda run: {})
    runs = pairs.collect(compute="auto")
    assert runs.table("rows").to_dict("records") == [{"x": 3, "model": "one", "seed": 3}]
    assert runs.artifacts[0].manifest["config"] == {"seed": 3}


@pytest.mark.parametrize(("content", "told"), [
    ({"models": ["one"]}, "'seeds' is missing"),
    ({"models": ["one", "one"], "seeds": 1}, r"\('one', 0\) is planned twice")])
def test_a_plan_that_cannot_be_applied_is_refused(content, told):
    with pytest.raises(UserError, match=f"data/plans/toy.yml: .*{told}"):
        toy().by_plan(Plan("toy", "0" * 16, content)).collect(compute="auto")


def test_a_result_of_another_plan_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "PLANS", tmp_path)
    (tmp_path / "toy.yml").write_text("seeds: 3\n")
    plan = load_plan("toy")
    assert plan.content == {"seeds": 3}
    assert plan.digest == hashlib.sha256(b"seeds: 3\n").hexdigest()[:16]
    results = [SimpleNamespace(name=name, manifest={"facts": facts}) for name, facts in {
        "kept": {"plan": plan.digest}, "changed": {"plan": "0" * 16}, "unplanned": {}}.items()]
    told = plan.deviations(results)
    assert [text.split()[0] for text in told] == ["changed", "unplanned"]
    assert all(plan.digest in text for text in told)


def test_there_is_no_plan_of_such_a_name():
    with pytest.raises(UserError, match="no_such_plan.yml"):
        load_plan("no_such_plan")


def steps(run, folder, die_at=None):
    """Three steps, each of which is noted once it is done; the process dies in one of them."""
    kept = Journal(folder / JOURNAL)
    for step in range(3):
        if str(step) in kept:
            continue
        if (run.model, run.inner.seed, step) == ("one", 1, die_at):
            os._exit(9)
        kept[str(step)] = {"pid": os.getpid()}
    write_tables({"steps": pd.DataFrame([kept[str(step)] for step in range(3)])}, folder)
    return {}


def test_a_killed_experiment_goes_on_with_the_step_that_it_was_at(cache):
    """The first run is stored and two steps of the second are noted when the process dies."""
    dying = forked(partial(toy(make=partial(steps, die_at=2)).collect, compute="auto"))
    dying.join(PATIENCE)
    assert dying.exitcode == 9 and [*toy(make=steps).collect().stored] == [("one", 0)]
    table = toy(make=steps).collect(compute="auto").table("steps")
    assert table.groupby(["model", "seed"])["pid"].nunique().to_dict() == {
        ("one", 0): 1, ("one", 1): 2, ("two", 0): 1, ("two", 1): 1}
    second = table.query("model == 'one' and seed == 1")["pid"].tolist()
    assert second[0] == second[1] != second[2]


def test_the_experiment_of_the_guide_can_be_added(cache):
    """Teaching models of the Llama recipe have 4 layers of 16 heads."""
    exec(snippets("CONTRIBUTING.md")["Add an experiment"], guide := {})
    runs = guide["NAMES"].collect(compute="auto")
    assert runs.table("names")["heads"].tolist() == [64, 65] and not runs.missing
    assert guide["NAMES"].collect().artifacts[0].manifest["facts"]["layers"] == 4
