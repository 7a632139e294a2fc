"""Stored runs are told from missing ones, and from damaged ones."""

import hashlib
from types import SimpleNamespace

import pytest

from rmutils.book.experiments import planned_runs as module
from rmutils.book.experiments.planned_runs import load_plan, stored_runs
from rmutils.core.errors import UserError
from rmutils.heads import DetectConfig
from rmutils.pipeline.retmask import RetMaskConfig, run_retmask
from rmutils.training import RECIPES

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


def test_a_result_of_another_plan_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PLANS", tmp_path)
    (tmp_path / "toy.yml").write_text("seeds: 3\n")
    plan = load_plan("toy")
    assert plan.content == {"seeds": 3}
    assert plan.digest == hashlib.sha256(b"seeds: 3\n").hexdigest()[:16]
    results = [SimpleNamespace(name=name, manifest={"facts": facts}) for name, facts in {
        "kept": {"plan": plan.digest}, "changed": {"plan": "0" * 16}, "unplanned": {}}.items()]
    told = plan.deviations(results)
    assert [text.split()[0] for text in told] == ["changed", "unplanned"]
    assert all(plan.digest in text for text in told)
