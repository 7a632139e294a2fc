"""RetMask on SmolLM2, against a control that masks other heads of the same layers."""

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from rmutils.book.experiments.planned_runs import MATCHED, RETMASK, RetMaskExperiment, planned_runs
from rmutils.core.config import run_notebook
from rmutils.core.errors import NotStored
from rmutils.core.experiment import Plan, Run
from rmutils.core.results import JOURNAL, Artifact, Compute, Stage
from rmutils.heads import detect, head_change
from rmutils.heads.detection import save
from rmutils.heads.masking import count_displaced
from rmutils.heads.scores import Head
from rmutils.pipeline.retmask import RetMaskConfig, RetMaskRun, RetMaskSteps, label_of
from rmutils.stats import Interval
from rmutils.training.compute_backend import ComputeBackend


@dataclass(frozen=True)
class LayerMatchedTraining:
    """The stored runs of the plan, of seeds that have both arms."""

    runs: list[tuple[RetMaskRun, RetMaskRun]]  # RetMask and its control, a pair for each seed
    planned: int  # seeds of the plan

    @property
    def artifacts(self) -> list[Artifact]:
        """The results that were read."""
        return [run.artifact for pair in self.runs for run in pair]

    def against_control(self) -> list[head_change.PairedDetection]:
        """After the control and after RetMask, with the heads that RetMask masked."""
        return [head_change.PairedDetection(control.after, own.after, own.heads) for own,
                control in self.runs]

    def effects(self) -> pd.DataFrame:
        """RetMask minus its control."""
        pairs = self.against_control()
        scores = head_change.training_effect(pairs, cases="both").query("quantity == 'change'")
        found = head_change.needles_found(pairs).query("quantity == 'change'")
        rows = pd.concat([scores[scores["group"].isin([head_change.RETRIEVAL, head_change.OTHER])],
                          found])
        return rows.rename(columns={"group": "what"})[["what", "value", "low", "high"]].reset_index(
            drop=True)

    def beyond_control(self) -> Interval:
        """RetMask minus its control, in the scores of the heads that RetMask masks."""
        row = self.effects().iloc[0]
        return Interval(row["value"], row["low"], row["high"])

    def made_elsewhere(self) -> int:
        """Seeds whose control was made on another machine than RetMask."""
        return sum(len({run.artifact.manifest["environment"]["hardware"] for run in pair}) > 1
                   for pair in self.runs)

    def displaced(self) -> int:
        """Most heads of a control that had to come from another layer."""
        return max(count_displaced(control.heads, own.heads) for own, control in self.runs)


REPEATED = Stage("repeated", version=1)
REPEATED_COMMAND = run_notebook("06_training_effect", {"compute_one_machine": "auto"})
ONE_MACHINE_SEED = 1


@dataclass(frozen=True)
class Retrained(RetMaskRun):
    """A run that was trained again from its stored pairs."""

    first: RetMaskRun

    @property
    def heads(self) -> list[Head]:
        """Those that were masked when the pairs were made."""
        return self.first.heads


def repeated(model: str, run: RetMaskRun, *, compute: Compute = "never") -> Artifact:
    """Train again from a run's stored pairs, on this machine, and detect; or look that up."""
    config = RetMaskConfig.from_identity(run.artifact.manifest["config"])

    def make(folder: Path) -> dict[str, Any]:
        trained, training = RetMaskSteps(model, config, ComputeBackend()).train(run.pairs)
        save(detect(trained, config.detect, journal=folder / JOURNAL), folder)
        return {"training": training.key}

    return REPEATED.obtain_folder(
        config, {"run": run.artifact.key}, make, compute=compute, model=model,
        label=label_of(config),
        command=REPEATED_COMMAND)


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
    """Return RetMask and its control with both trained on a processor, or None."""
    runs = LAYER_MATCHED.runs()
    try:
        own, control = (LAYER_MATCHED.obtain(runs[ONE_MACHINE_SEED, arm], compute="never")
                        for arm in (RETMASK, MATCHED))
        artifact = repeated(runs[ONE_MACHINE_SEED, RETMASK].model, own, compute=compute)
    except NotStored:
        return None
    again = Retrained(own.model, own.config, own.compute, artifact, own)
    return LayerMatchedTraining([(again, control)], 1)
