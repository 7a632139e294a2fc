"""What the planned runs of experiments take, by the recorded seconds of those that are stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rmutils.book.chapters.contrast_without_training.experiment import CONTRASTED
from rmutils.book.chapters.data_and_training.half_learned import HALF_LEARNED
from rmutils.book.chapters.ms_poe.experiment import POSITIONS
from rmutils.book.chapters.olmo3_recipe.ablations import RECIPE_PARTS
from rmutils.book.chapters.redirect_heads.experiment import FEW, REDIRECT
from rmutils.book.chapters.score_distribution.sparser_versions import SPARSITY_AND_GAIN
from rmutils.book.chapters.training_effect.half_masked import HALF_MASKED
from rmutils.book.chapters.training_effect.layer_matched_training import LAYER_MATCHED
from rmutils.book.chapters.training_effect.real_training import REAL_TRAINING
from rmutils.book.chapters.which_heads.pairs_from_other_heads import OTHER_PAIRS
from rmutils.core.experiment import Experiment, Runs

EXPERIMENTS: tuple[Experiment[Any, Any], ...] = (
    CONTRASTED, FEW, HALF_LEARNED, HALF_MASKED, LAYER_MATCHED, OTHER_PAIRS, POSITIONS,
    REAL_TRAINING, RECIPE_PARTS, REDIRECT, SPARSITY_AND_GAIN)
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
            count = len(runs.missing if choice == "auto" else runs.planned)
            seconds, where = seconds_of_a_run(runs)
            told = f"{seconds:.0f} s each{where}" if runs.stored else "none is stored to tell"
            yield f"runs of data/plans/{one.read_plan().name}.yml", count * seconds, (
                f"{count} of {len(runs.planned)} planned runs are to be computed"
                + f" ({told})" * bool(count))


def seconds_of_a_run(runs: Runs[Any, Any]) -> tuple[float, str]:
    """Return the mean of the stored runs that were made without an accelerator, or of all if there
    is none; and where that was, if it was on one."""
    machines = [artifact.manifest["environment"]["hardware"] for artifact in runs.artifacts]
    alone = [took for took, machine in zip(runs.seconds, machines, strict=True)
             if " x " not in machine]
    chosen = alone or runs.seconds
    return (sum(chosen) / len(chosen) if chosen else 0.0,
            "" if alone or not chosen else f" on {machines[0]}")
