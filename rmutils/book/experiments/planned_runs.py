"""The runs that the book's chapters show, fixed before any of them was looked at."""

import json
from collections import Counter
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from rmutils.core.errors import NotStored, UserError
from rmutils.core.experiment import Experiment, LeftOut, Run, Runs, load_plan
from rmutils.core.results import Artifact, Compute, find, stored
from rmutils.evaluation.answers import find_needles
from rmutils.heads import DetectConfig
from rmutils.heads.detection import even_depths
from rmutils.models import LanguageModel, load_model
from rmutils.models.teaching import RECIPES, TeachingRecipe, steps_taken, train
from rmutils.pipeline.retmask import RETMASK as RUN
from rmutils.pipeline.retmask import (
    RetMaskConfig,
    RetMaskRun,
    RetMaskSteps,
    run_command,
    run_retmask,
)
from rmutils.training.compute_backend import ComputeBackend

_TEACHING = RetMaskConfig().changed({"instructions": 512, "detect.depths": even_depths(5)})
"""200 cases, instructions of the world, all weights trained."""
_REAL = RetMaskConfig().changed({
    "source": "self", "instructions": 540, "responses.max_new_tokens": 128,
    "detect.lengths": (512, 1024), "detect.depths": even_depths(5),
    "recipe.lora_rank": 8, "recipe.learning_rate": 5e-5, "recipe.min_learning_rate": 5e-6,
    "recipe.precision": "bfloat16"})
"""120 cases; instructions that the model writes itself; LoRA, whose weights are small enough to
ship. The rate is ours, and no other one was tried."""
_LARGER = _REAL.changed({
    "responses.max_new_tokens": 64, "detect.lengths": (512, 1024, 2048),
    "detect.depths": even_depths(3), "detect.needles": 16, "detect.needle_set": "facts-literal",
    "detect.max_new_tokens": 32})
"""144 cases (`data/plans/real_models.yml`), and shorter answers, for larger models."""
MODELS = ("tiny-llama", "tiny-qwen3", "tiny-olmo3", "smollm2-135m")
LARGER_MODELS = ("qwen2.5-coder-0.5b",)
RETMASK, MATCHED = "retmask", "layer-matched-non-retrieval-mask"
_MASKS = (RETMASK, "non-retrieval-mask", "random-mask", "sft")
BEFORE = "before"  # instead of a strategy: the model that all training begins with
_SEEDS = range(5)


def planned_runs(model: str) -> list[RetMaskConfig]:
    """The configurations of all runs on a model, those of a strategy side by side by seed."""
    if model == "smollm2-135m":
        return [_REAL.changed({"strategy": strategy}) for strategy in _MASKS]
    if model in LARGER_MODELS:
        return [_LARGER.changed({"strategy": strategy, "seed": seed})
                for seed in (1, 2) for strategy in (RETMASK, MATCHED)]
    if model not in MODELS:
        raise UserError(f"no runs on {model} are planned for the book. Configure your own: "
                        f"`rmutils retmask {model} --list`.")
    strategies = {strategy: {} for strategy in (*_MASKS, "win-lose-pair")}
    strategies["smaller-model"] = {"smaller": "tiny-llama-small"}
    if model == "tiny-qwen3":  # the one that thinks
        strategies |= {"rc-removed": {}, "rc-un-generated": {}}
    return [_TEACHING.changed({"strategy": strategy, "seed": seed, **more})
            for seed in _SEEDS for strategy, more in strategies.items()]


def layer_matched(chapter: str) -> dict[str, Any]:
    """Return what the plan of the layer-matched controls says of a chapter."""
    part, = (part for part in load_plan("layer_matched").content["parts"]
             if part["chapter"] == chapter)
    return part


def stored_runs(model: str, configs: Iterable[RetMaskConfig]) -> tuple[list[RetMaskRun], list[str]]:
    """Read what is stored, and compute nothing."""
    found, missing = [], []
    for config in configs:
        try:
            found.append(run_retmask(model, config, compute="never"))
        except NotStored:
            missing.append(run_command(model, config))
    return found, missing


class RetMaskExperiment(Experiment[Run, RetMaskRun]):
    """An experiment whose runs are those of `rmutils retmask`."""

    def command_of(self, run: Run) -> str:
        return run_command(*run)

    def obtain(self, run: Run, *, compute: Compute = "auto") -> RetMaskRun:
        return run_retmask(*run, compute=compute)


def retrain(model: str, run: RetMaskRun,
            compute_backend: ComputeBackend = ComputeBackend()) -> Artifact:
    """Repeat the training of a stored run from its pairs, where its weights are not stored."""
    config = RetMaskConfig.from_identity(run.artifact.manifest["config"])
    return RetMaskSteps(model, config, compute_backend).train(run.pairs)[1]


def retrain_missing(model: str, trainings: Collection[str]) -> None:
    """Train again what has a stored run but no weights."""
    missing = {training for training in trainings if find(training) is None}
    for artifact in stored(RUN.name) if missing else ():
        if json.loads(artifact.path("run.json").read_text())["training"] in missing:
            config = RetMaskConfig.from_identity(artifact.manifest["config"])
            retrain(model, run_retmask(model, config, compute="never"))


class NoSnapshot(LeftOut):
    """No look at a training found a share of the needles in the range."""


def find_snapshot(name: str, recipe: TeachingRecipe, home: Path, detect: DetectConfig, *,
                  every: int, found: tuple[float, float]) -> tuple[Path, int]:
    """Train until a look finds a share of needles in a range; return the folder and the step."""
    for step in range(every, recipe.steps, every):
        if step < steps_taken(home):
            continue
        folder = train(recipe, home, until=step)
        share = find_needles(load_model(str(folder)), detect)["success"].mean()
        if found[0] <= share <= found[1]:
            return folder, step
        if share > found[1]:
            break
    raise NoSnapshot(f"{name} never found {found[0]:.0%} to {found[1]:.0%} of the needles when we "
                     f"looked: it is left out.")


def label_of_arm(run: Any) -> str:
    """Return how the folder of a run on a snapshot is called: `before`, or `sft-seed3`."""
    return run.arm if run.arm == BEFORE else f"{run.arm}-seed{run.retmask.seed}"


def other_weights(runs: Runs) -> list[str]:
    """Say which trainings did not begin with the weights that are stored for their model."""
    weights = {key: one.manifest["facts"]["weights"] for key, one in runs.stored.items()}
    before = {model: own for (model, arm, _), own in weights.items() if arm == BEFORE}
    return [f"{runs.stored[key].name} began with other weights than the model that is stored."
            for key, own in weights.items() if own != before.get(key[0], own)]


def train_on_pairs(snapshot: Path, config: RetMaskConfig) -> LanguageModel:
    """Return a snapshot after a strategy's training, which is looked up if it is stored."""
    steps = RetMaskSteps(str(snapshot), config, ComputeBackend())
    pairs, _ = steps.pair(steps.mask())
    return steps.train(pairs.table)[0]


def from_other_layers(model: str, heads: Iterable[list[int]]) -> str:
    """Say how many heads of a layer-matched control have to come from another layer."""
    counts, of_layer = Counter(layer for layer, _ in heads), RECIPES[model].num_attention_heads
    lacking = sum(max(0, 2 * count - of_layer) for count in counts.values())
    return (f"On `{model}` {lacking} of the control's {counts.total()} heads come from "
            "another layer, so the comparison is no more than a hint there.") if lacking else ""


@cache
def trainings(model: str, strategy: str, **changes: object) -> list[RetMaskRun]:
    """All runs of a strategy that were planned, by seed. They are read once."""
    configs = [config.changed(changes) for config in planned_runs(model)
               if config.strategy == strategy]
    runs, missing = stored_runs(model, configs)
    if missing:
        raise NotStored(f"{len(missing)} of the {len(configs)} runs of {strategy} planned on "
                        f"{model} have not been run. The first is made by `{missing[0]}`.")
    return runs


def seeds_said(seeds: Iterable[int]) -> str:
    """As `5 seeds`."""
    count = len({*seeds})
    return f"{count} seeds" if count > 1 else "one training"
