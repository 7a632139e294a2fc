"""RetMask on SmolLM2, against a control that masks other heads of the same layers.

RetMask of seed 1 is also trained again from its stored pairs, where its control was trained: on a
processor.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from rmutils.book.experiments.planned_runs import MATCHED, RETMASK, RetMaskExperiment, planned_runs
from rmutils.core.config import run_notebook
from rmutils.core.errors import NotStored
from rmutils.core.experiment import Plan, Run
from rmutils.core.results import JOURNAL, Artifact, Compute, Stage
from rmutils.heads import HeadScores, detect
from rmutils.heads.detection import load, save
from rmutils.heads.head_change import (
    OTHER,
    RETRIEVAL,
    PairedDetection,
    needles_found,
    training_effect,
)
from rmutils.heads.masking import count_displaced
from rmutils.pipeline.retmask import (
    RetMaskConfig,
    RetMaskRun,
    RetMaskSteps,
    label_of,
)
from rmutils.stats import Interval
from rmutils.training.compute_backend import ComputeBackend


@dataclass(frozen=True)
class LayerMatchedTraining:
    """The stored runs of the plan, of seeds that have both arms.

    Attributes
    ----------
    runs : list of (RetMaskRun, RetMaskRun)
        RetMask and its control, a pair for each seed.
    planned : int
        Seeds of the plan.
    """

    runs: list[tuple[RetMaskRun, RetMaskRun]]
    planned: int

    @property
    def artifacts(self) -> list[Artifact]:
        """The results that were read."""
        return [run.artifact for pair in self.runs for run in pair]

    def against_control(self) -> list[PairedDetection]:
        """After the control and after RetMask, with the heads that RetMask masked."""
        return [PairedDetection(control.after, own.after, own.heads) for own, control in self.runs]

    def effects(self) -> pd.DataFrame:
        """RetMask minus its control.

        Returns
        -------
        DataFrame
            `what`, `value`, `low`, `high`: scores of the masked and of the other heads, over cases
            that both trained models solve, and the share of needles found.
        """
        pairs = self.against_control()
        scores = training_effect(pairs, cases="both").query("quantity == 'change'")
        found = needles_found(pairs).query("quantity == 'change'")
        rows = pd.concat([scores[scores["group"].isin([RETRIEVAL, OTHER])], found])
        return rows.rename(columns={"group": "what"})[["what", "value", "low", "high"]].reset_index(
            drop=True)

    def beyond_control(self) -> Interval:
        """RetMask minus its control, in the scores of the heads that RetMask masks."""
        row = self.effects().iloc[0]
        return Interval(row["value"], row["low"], row["high"])

    def rise(self) -> Interval:
        """How much RetMask adds to the untrained model's score of the heads that it masks."""
        effect = training_effect([PairedDetection(own.before, own.after, own.heads)
                                  for own, _ in self.runs], cases="both")
        row = effect.query("group == @RETRIEVAL and quantity == 'change'").iloc[0]
        return Interval(row["value"], row["low"], row["high"])

    def made_elsewhere(self) -> int:
        """Seeds whose control was made on another machine than RetMask."""
        return sum(len({run.artifact.manifest["environment"]["hardware"] for run in pair}) > 1
                   for pair in self.runs)

    def displaced(self) -> int:
        """Most heads of a control that had to come from another layer."""
        return max(count_displaced(control.heads, own.heads) for own, control in self.runs)


REPEATED = Stage("repeated", version=1)
ONE_MACHINE_SEED = 1


def repeated(model: str, run: RetMaskRun, *, compute: Compute = "never") -> tuple[
        HeadScores, Artifact]:
    """Train again from a run's stored pairs, on this machine, and detect; or look that up.

    Raises
    ------
    NotStored
        It is not stored and `compute="never"`.
    """
    config = RetMaskConfig.from_identity(run.artifact.manifest["config"])

    def make(folder: Path) -> dict[str, Any]:
        trained, training = RetMaskSteps(model, config, ComputeBackend()).train(run.pairs)
        save(detect(trained, config.detect, journal=folder / JOURNAL), folder)
        return {"training": training.key}

    artifact = REPEATED.obtain_folder(
        config, {"run": run.artifact.key}, make, compute=compute, model=model,
        label=label_of(config),
        command=run_notebook("06_training_effect", {"compute_one_machine": "auto"}))
    return load(artifact.folder, f"{model}, trained again"), artifact


def planned(plan: Plan) -> list[Run]:
    """Return all runs in the order in which they are made."""
    p = plan.content
    base = planned_runs(p["model"])[0]
    return [Run(p["model"], base.changed({"strategy": arm, "seed": seed}))
            for seed, arm in product(p["seeds"], p["arms"])]


LAYER_MATCHED = RetMaskExperiment(
    name="layer-matched-training", config=RetMaskConfig, plan="layer_matched_training",
    planned=planned, keys=("config.seed", "config.strategy"), notebook="06_training_effect",
    parameter="compute_matched")


def layer_matched_training(*, compute: Compute = "never") -> LayerMatchedTraining:
    """Collect the stored runs, and make the missing ones unless `compute="never"`."""
    runs = LAYER_MATCHED.collect(compute=compute)
    seeds = [*dict.fromkeys(seed for seed, _ in runs.planned)]
    return LayerMatchedTraining(
        [(runs.stored[seed, RETMASK], runs.stored[seed, MATCHED]) for seed in seeds
         if {(seed, RETMASK), (seed, MATCHED)} <= runs.stored.keys()], len(seeds))


def on_one_machine(*, compute: Compute = "never") -> LayerMatchedTraining | None:
    """Return RetMask and its control with both trained on a processor, or None if that is not
    stored: the pairs are those of the stored runs."""
    runs = LAYER_MATCHED.runs()
    try:
        own, control = (LAYER_MATCHED.obtain(runs[ONE_MACHINE_SEED, arm], compute="never")
                        for arm in (RETMASK, MATCHED))
        after, artifact = repeated(runs[ONE_MACHINE_SEED, RETMASK].model, own, compute=compute)
    except NotStored:
        return None
    return LayerMatchedTraining([(replace(own, after=after, artifact=artifact), control)], 1)


def verdict(beyond: Interval, rise: Interval) -> str:
    """Apply the rule of the plan.

    Parameters
    ----------
    beyond : Interval
        RetMask minus its control, in the heads that RetMask masks.
    rise : Interval
        RetMask minus the untrained model.

    Examples
    --------
    >>> verdict(Interval(0.01, 0.005, 0.015), Interval(0.02, 0.01, 0.03))
    'these heads had to be masked'
    """
    if beyond.low > 0:
        return "these heads had to be masked"
    if beyond.high < 0:
        return "masking others of their layers raises them more"
    return ("masking any heads of their layers does it" if beyond.high < rise.value / 2
            else "undecided")


LEADS = {
    "these heads had to be masked": "Masking others of their layers does not do it",
    "masking others of their layers raises them more": "Other heads of their layers do it better",
    "masking any heads of their layers does it": "Any heads of their layers do it",
    "undecided": "Whether it had to be these heads, or any of their layers, is undecided"}
"""Each verdict, as the beginning of a paragraph."""


def headline(result: LayerMatchedTraining) -> str:
    """Say what was found in two sentences, or nothing while a planned seed is missing."""
    if len(result.runs) < result.planned:
        return ""
    beyond = result.beyond_control()
    return (f"**{LEADS[verdict(beyond, result.rise())]}.** Their scores after RetMask, minus those "
            "after a training on the same instructions that masks as many others of the same "
            f"layers: {_thousandths(beyond)} thousandths ({len(result.runs)} seeds"
            + (", the two trainings on different machines" if result.made_elsewhere() else "")
            + ").")


def finding(result: LayerMatchedTraining, plan: Plan) -> str:
    """Say what was found in one seed or more, with a verdict only if no planned seed is missing."""
    beyond, rise = result.beyond_control(), result.rise()
    (own, control), *_ = result.runs
    layers = sorted(layer for layer, _ in own.heads)
    told = (f"Scores of the {len(own.heads)} heads of `{plan.content['model']}` that RetMask masks "
            f"(layers {layers[0]} to {layers[-1]}), after RetMask minus after a control that "
            f"masks {len(control.heads)} others in the same layers: **{_thousandths(beyond)} "
            f"thousandths**. RetMask alone adds {_thousandths(rise)}. Seeds: {len(result.runs)} of "
            f"{result.planned} planned.")
    if len(result.runs) > 1:
        told += (" Seed by seed, with intervals over needles alone: " + "; ".join(
            _thousandths(replace(result, runs=[pair]).beyond_control())
            for pair in result.runs) + ".")
    if displaced := result.displaced():
        told += f" Of a control's heads, up to {displaced} had to come from the nearest layers."
    if elsewhere := result.made_elsewhere():
        told += (f" Against the plan, RetMask and its control were made on different machines in "
                 f"{elsewhere} of these seeds.")
    return told + (" There is no verdict before all seeds are there."
                   if len(result.runs) < result.planned else
                   f" By the rule of the plan: {verdict(beyond, rise)}.")


def _thousandths(found: Interval) -> str:
    value, low, high = (f"{1000 * end + 0:.1f}".replace("-", "−") for end in found)
    return f"{value} [{low}, {high}]"
