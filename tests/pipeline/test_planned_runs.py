"""Stored runs are told from missing ones, and from damaged ones."""

import pytest

from rmutils.book.experiments.planned_runs import stored_runs
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
