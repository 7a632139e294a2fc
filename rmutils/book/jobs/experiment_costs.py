"""What the planned runs of experiments take, by the recorded seconds of those that are stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rmutils.book.chapters.contrast_without_training import CONTRASTED
from rmutils.book.chapters.data_and_training.half_learned import HALF_LEARNED
from rmutils.book.chapters.memory_by_heads import FOUND, MEMORY
from rmutils.book.chapters.ms_poe.experiment import POSITIONS
from rmutils.book.chapters.olmo3_recipe.ablations import RECIPE_PARTS
from rmutils.book.chapters.redirect_heads.experiment import FEW, REDIRECT
from rmutils.book.chapters.score_distribution.sparser_versions import SPARSITY_AND_GAIN
from rmutils.book.chapters.training_effect.half_masked import HALF_MASKED
from rmutils.book.chapters.training_effect.layer_matched_training import LAYER_MATCHED
from rmutils.book.chapters.training_effect.real_training import REAL_TRAINING
from rmutils.book.chapters.which_heads.pairs_from_other_heads import OTHER_PAIRS
from rmutils.core.experiment import Experiment, Runs
from rmutils.models.costs import weight

EXPERIMENTS: tuple[Experiment[Any, Any], ...] = (
    CONTRASTED, FEW, FOUND, HALF_LEARNED, HALF_MASKED, LAYER_MATCHED, MEMORY, OTHER_PAIRS,
    POSITIONS, REAL_TRAINING, RECIPE_PARTS, REDIRECT, SPARSITY_AND_GAIN)
SWITCHES = {(one.notebook, one.parameter) for one in EXPERIMENTS}
"""Notebooks, and the parameters that say whether they compute an experiment."""


def planned_seconds(
    notebook: str, values: Mapping[str, Any]
) -> Iterator[tuple[str, float, str]]:
    """Yield the experiments that a notebook computes by these parameters: name, seconds, why."""
    for one in EXPERIMENTS:
        choice = values.get(one.parameter, "never")
        if one.notebook == notebook and choice != "never":
            runs = one.collect()
            todo = [*(runs.missing if choice == "auto" else runs.planned)]
            rate, where = seconds_by_weight(runs)
            seconds = rate * sum(weight(runs.planned[key].model) for key in todo)
            told = "by those that are stored and the models' sizes" + where
            yield f"runs of data/plans/{one.read_plan().name}.yml", seconds, (
                f"{len(todo)} of {len(runs.planned)} planned runs are to be computed" + (
                    "" if not todo else f", {told}" if rate else ", and none is stored to tell"))


def seconds_by_weight(runs: Runs[Any, Any]) -> tuple[float, str]:
    """Return what stored runs took for a model of weight 1, without an accelerator if one was made
    so; and where that was, if it was on one."""
    rows = [(took, weight(runs.planned[key].model), artifact.manifest["environment"]["hardware"])
            for key, artifact, took in zip(runs.stored, runs.artifacts, runs.seconds, strict=True)]
    alone = [row for row in rows if " x " not in row[2]]
    took, weights, machines = zip(*(alone or rows), strict=True) if rows else ((), (), ())
    return (sum(took) / sum(weights) if rows else 0.0,
            f" (on {machines[0]})" if rows and not alone else "")
