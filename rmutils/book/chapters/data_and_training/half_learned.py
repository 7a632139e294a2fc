"""Can RetMask teach what is half learned? An experiment on snapshots of the teaching models."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rmutils import stats
from rmutils.book.experiments import planned_runs
from rmutils.book.experiments.planned_runs import MATCHED
from rmutils.core.config import Config
from rmutils.core.experiment import Experiment, LeftOut, Plan
from rmutils.core.paths import cache_dir
from rmutils.core.results import Artifact, Compute, read_tables, write_tables
from rmutils.evaluation.helmet import EvaluateConfig, evaluate
from rmutils.heads import HeadScores
from rmutils.heads.detection import even_depths, run_cases
from rmutils.heads.head_change import needle_weights, over_runs, weighted_means
from rmutils.heads.scores import Head
from rmutils.models import LanguageModel, identify, load_model
from rmutils.models.known_models import tau_of
from rmutils.models.teaching import RECIPES, train, train_further
from rmutils.pipeline.retmask import RetMaskConfig

FURTHER = "further"  # the arm of ordinary training
SHORT = {planned_runs.RETMASK: "RetMask", MATCHED: "same layers", "random-mask": "random heads",
         "sft": "SFT", FURTHER: "more steps"}
"""Arms as figures name them."""


class SnapshotConfig(Config):
    """One run: a snapshot of a model's training, and what is done to it."""

    model: str
    """A teaching model with a recipe."""
    arm: str
    """A strategy, `further`, or `before`: the snapshot itself."""
    retmask: RetMaskConfig
    """Settings of the training, with every arm's seed; its cases choose the snapshot and the heads.
    """
    every: int
    """Training steps between two looks."""
    found: tuple[float, float]
    """The first look with a share of needles in this range is the snapshot."""


class HalfLearnedConfig(SnapshotConfig):
    """Its cases are the outcome, and tasks."""

    further: int
    """Steps of ordinary training."""
    evaluation: EvaluateConfig
    off_floor: tuple[float, float]
    """Data sets that the snapshot scores in this range (of 100) are asked again after a training.
    """


@dataclass(frozen=True)
class HalfLearned:
    """The stored runs of the plan."""

    # `model`, `arm`, `seed`, `needle`, `length`, `depth`, `success`, `retrieval` and `others` (mean
    # score of the snapshot's retrieval heads, and of the other heads in their layers).
    cases: pd.DataFrame
    tasks: pd.DataFrame  # `model`, `arm`, `seed`, `category`, `dataset`, `score` (0 to 100)
    snapshots: pd.DataFrame  # `model`, `step`, `heads` (how many retrieve)
    # `planned`, `done`: Training runs; the snapshots themselves do not count.
    planned: int
    done: int
    deviations: list[str]  # what is not as the plan says


def planned(plan: Plan) -> list[HalfLearnedConfig]:
    """Return all runs in the order in which they are made, the snapshot of a model first."""
    p = plan.content
    shared = {"every": p["snapshot"]["every"], "found": tuple(p["snapshot"]["found"]),
              "further": p["further"]["steps"], "off_floor": tuple(p["tasks"]["off_floor"]),
              "evaluation": EvaluateConfig(lengths=tuple(p["tasks"]["lengths"]),
                                           samples=p["tasks"]["samples"])}
    method = method_of(p, tuple(p["needles"]["lengths"]), p["needles"]["depths"])
    runs = []
    for model in p["models"]:
        own = method.changed({"tau": tau_of(model)})
        runs.append(HalfLearnedConfig(model=model, arm=planned_runs.BEFORE, retmask=own, **shared))
        runs += [HalfLearnedConfig(model=model, arm=arm, **shared, retmask=own.changed(
                     {"seed": seed, "strategy": planned_runs.RETMASK if arm == FURTHER else arm}))
                 for seed, arm in product(range(p["seeds"]), p["arms"])]
    return runs


def method_of(content: dict[str, Any], lengths: tuple[int, ...], depths: int) -> RetMaskConfig:
    """Return the settings of a plan's training, with the cases that choose snapshot and heads."""
    training = content["training"]
    return RetMaskConfig().changed({
        "instructions": content["pairs"]["instructions"], "detect.lengths": lengths,
        "detect.depths": even_depths(depths), "recipe.max_steps": training["steps"],
        "recipe.learning_rate": training["learning_rate"],
        "recipe.min_learning_rate": training["min_learning_rate"]})


def begin(
    config: SnapshotConfig,
) -> tuple[Path, int, list[Head], LanguageModel, tuple[np.ndarray, pd.DataFrame]]:
    """Train a model until it finds part of the needles; return the folder of this snapshot, its
    step, its retrieval heads, the model, and the scores and cases that chose them."""
    where, step = planned_runs.find_snapshot(config.model, RECIPES[config.model],
                                             snapshot_home(config.model),
                                config.retmask.detect, every=config.every, found=config.found)
    lm = load_model(str(where))
    runs, cases = run_cases(lm, config.retmask.detect)
    heads = HeadScores(runs[cases["success"]], lm.name).select(tau=config.retmask.tau)
    if not heads:
        raise LeftOut(f"no head of {config.model} retrieves at step {step}.")
    return where, step, heads, lm, (runs, cases)


def begun(experiment: Experiment[Any, Artifact],
          config: SnapshotConfig) -> tuple[Artifact, Path, int, list[Head]]:
    """Return the run that is the snapshot, its folder and step, and its retrieval heads."""
    before = experiment.obtain(config.changed({
        "arm": planned_runs.BEFORE, "retmask.seed": 0, "retmask.strategy": planned_runs.RETMASK}))
    facts = before.manifest["facts"]
    return (before, snapshot_folder(config.model, facts["step"]), facts["step"],
            [tuple(head) for head in facts["heads"]])


def _make(config: HalfLearnedConfig, folder: Path) -> dict[str, Any]:
    """Write the tables `cases` and `tasks`; the facts name the snapshot and its retrieval heads."""
    if config.arm == planned_runs.BEFORE:
        where, step, heads, lm, (runs, cases) = begin(config)
        chosen = config.evaluation
    else:
        before, where, step, heads = begun(HALF_LEARNED, config)
        tasks, lm = read_tables(before.folder)["tasks"], trained(config, where)
        runs, cases = run_cases(lm, config.retmask.detect)
        chosen = config.evaluation.changed({"datasets": tuple(off_floor(tasks, config))})
    write_tables({"cases": scores_of_cases(runs, cases, heads),
                  "tasks": task_means(evaluate(lm, chosen))}, folder)
    return {"step": step, "weights": identify(str(where)), "heads": heads}


HALF_LEARNED = Experiment[HalfLearnedConfig, Artifact](
    name="half-learned", config=HalfLearnedConfig, plan="half_learned", planned=planned,
    keys=("model", "arm", "retmask.seed"), make=_make, label=planned_runs.label_of_arm,
    inputs=lambda run: {"recipe": RECIPES[run.model].digest()},
    notebook="09_data_and_training", parameter="compute_half")


def snapshot_home(model: str) -> Path:
    """Where a model's half-finished training goes on."""
    return cache_dir() / "models" / f"half-{model}"


def snapshot_folder(model: str, step: int) -> Path:
    """Folder of a model's snapshot, which is trained if it is not there."""
    return train(RECIPES[model], snapshot_home(model), until=step)


def trained(config: HalfLearnedConfig, snapshot: Path) -> LanguageModel:
    """Return the model after a run's training, which is looked up if it is stored."""
    if config.arm == FURTHER:
        lm = load_model(str(snapshot))
        lm.model.load_state_dict(train_further(RECIPES[config.model], snapshot, config.further,
                                               seed=config.retmask.seed).state_dict())
        return lm
    return planned_runs.train_on_pairs(snapshot, config.retmask)


def scores_of_cases(runs: np.ndarray, cases: pd.DataFrame, heads: Collection[Head]) -> pd.DataFrame:
    """Each case with the mean score of some heads, and of the others in their layers."""
    chosen = np.zeros(runs.shape[1:], bool)
    chosen[tuple(zip(*heads, strict=True))] = True
    others = ~chosen & chosen.any(1, keepdims=True)
    return cases[["needle", "length", "depth", "success"]].assign(**{
        name: [row[part].mean() if part.any() else np.nan for row in runs]
        for name, part in (("retrieval", chosen), ("others", others))}).astype(
        {"retrieval": "float32", "others": "float32"})


def task_means(samples: pd.DataFrame) -> pd.DataFrame:
    """Mean of each data set: the plain mean of its metrics."""
    metrics = samples.groupby(["category", "dataset", "metric"], sort=False)["score"].mean()
    return metrics.groupby(["category", "dataset"], sort=False).mean().reset_index()


def off_floor(tasks: pd.DataFrame, config: HalfLearnedConfig) -> list[str]:
    """Return the data sets whose score leaves room for a gain and for a loss."""
    return tasks.loc[tasks["score"].between(*config.off_floor), "dataset"].tolist()


def half_learned(*, compute: Compute = "never") -> HalfLearned | None:
    """Collect the stored runs, and make the missing ones unless `compute="never"`."""
    runs = HALF_LEARNED.collect(compute=compute)
    facts = {model: artifact.manifest["facts"] for (model, arm, _), artifact in runs.stored.items()
             if arm == planned_runs.BEFORE}
    if len(runs.stored) == len(facts):
        return None
    crowded = [planned_runs.from_other_layers(model, one["heads"]) for model, one in facts.items()]
    return HalfLearned(
        runs.table("cases"), runs.table("tasks"), pd.DataFrame([
            {"model": model, "step": one["step"], "heads": len(one["heads"])}
            for model, one in facts.items()]),
        planned=sum(arm != planned_runs.BEFORE for _, arm, _ in runs.planned),
        done=len(runs.stored) - len(facts),
        deviations=[*runs.deviations, *filter(None, crowded), *planned_runs.other_weights(runs)])


def compare_arms(cases: pd.DataFrame, arm: str = planned_runs.RETMASK, base: str = MATCHED, *,
                 measure: str = "success") -> pd.DataFrame:
    """Compare two arms model by model, seeds paired."""
    rows, places = [], ["needle", "length", "depth"]
    for model, part in cases.groupby("model", sort=False):
        ours, theirs = (part[part["arm"] == name] for name in (arm, base))
        if base == planned_runs.BEFORE:
            theirs = theirs.drop(columns="seed")
        pairs = ours.merge(theirs, on=places if base == planned_runs.BEFORE else [*places, "seed"],
                           suffixes=("", "_base"))
        if measure != "success":
            pairs = pairs[pairs["success"] & pairs["success_base"]]
        if pairs.empty:
            continue
        pairs["difference"] = pairs[measure].astype(float) - pairs[f"{measure}_base"]
        by_seed = pairs.groupby("seed")["difference"].mean().to_numpy()
        low, high = _interval(pairs) if len(by_seed) > 1 else (np.nan, np.nan)
        rows.append((model, by_seed.mean(), low, high, stats.contrast(by_seed).p, len(by_seed)))
    found = pd.DataFrame(rows, columns=["model", "effect", "low", "high", "p", "seeds"])
    found.insert(5, "p_holm", stats.holm(found["p"]))
    return found


def _interval(pairs: pd.DataFrame) -> tuple[float, float]:
    """Over needles and seeds, though not every case counts in every seed."""
    sums = pairs.pivot_table(index="needle", columns="seed", values="difference", fill_value=0,
                             aggfunc=["sum", "count"])
    table = np.stack([sums["sum"].to_numpy().T, sums["count"].to_numpy().T], axis=-1)
    means = weighted_means(table, needle_weights(len(sums), stats.RESAMPLES, 0))[..., 0]
    found = stats.interval_of(over_runs(means, len(sums), 0), bounds=stats.DIFFERENCE)
    return found.low, found.high


def changes(result: HalfLearned) -> pd.DataFrame:
    """Compare each arm with its snapshot: needles, scores of heads, tasks off the floor."""
    parts, arms = [], [arm for arm in result.cases["arm"].unique() if arm != planned_runs.BEFORE]
    for measure, told in (("success", "needles found (points of 100)"),
                          ("retrieval", "score, retrieval heads (points of 100)"),
                          ("others", "score, other heads (points of 100)")):
        found = pd.concat([compare_arms(result.cases, arm, planned_runs.BEFORE,
                                        measure=measure).assign(arm=arm)
                           for arm in arms]).rename(columns={"effect": "value"})
        found[["value", "low", "high"]] *= 100
        parts.append(found.assign(measure=told))
    before = result.tasks[result.tasks["arm"] == planned_runs.BEFORE].drop(columns=["arm", "seed"])
    both = result.tasks[result.tasks["arm"] != planned_runs.BEFORE].merge(
        before, on=["model", "category", "dataset"], suffixes=("", "_before"))
    both["gain"] = both["score"] - both["score_before"]
    gains = both.groupby(["model", "arm", "seed"])["gain"].mean()
    for (model, arm), gain in gains.groupby(level=["model", "arm"]):
        value, low, high = stats.interval(gain.to_numpy())
        parts.append(pd.DataFrame([{"model": model, "arm": arm, "value": value, "low": low,
                                    "high": high, "measure": "tasks (points of 100)"}]))
    found = pd.concat(parts, ignore_index=True)
    order = {arm: number for number, arm in enumerate(arms)}
    found = found.assign(order=found["arm"].map(order)).sort_values(
        ["model", "order"], kind="stable")
    found["label"] = found["model"] + ", " + found["arm"].map(SHORT)
    return found[["measure", "label", "value", "low", "high"]]


def smallest_effect(*, seeds: int, cases: int, within: float = 0.125, between: float = 0.05,
                    models: int = 3, experiments: int = 4000, seed: int = 0) -> float:
    """The smallest difference of two arms that the planned test is likely to detect, simulated."""
    noise = np.sqrt(2 * (within / cases + between**2))
    drawn = np.random.default_rng(seed).normal(0, noise, (experiments, seeds))
    signs = np.array([(1, *rest) for rest in product((1, -1), repeat=seeds - 1)])  # half of them
    flipped, moved = drawn @ signs.T, signs.sum(1)
    for effect in np.arange(1, 101) / 100:
        sums = abs(flipped + effect * moved)  # the first pattern is what was observed
        p = (sums >= sums[:, :1] * (1 - stats.TIE)).mean(1)
        if (p < (1 - stats.LEVEL) / models).mean() >= stats.POWER:
            return float(effect)
    return float("nan")


def verdict(table: pd.DataFrame, plan: Plan) -> str:
    """Return the plan's word for the comparison of all models and seeds: `shown` (in at least two
    models), `in_part`, `excluded` or `undecided`."""
    level, seen = plan.content["test"]["level"], plan.content["smallest_effect"]
    clear = table[(table["p_holm"] < level) & ((table["low"] > 0) | (table["high"] < 0))]
    signs = np.sign(clear["effect"])
    if (signs > 0).sum() > 1 or (signs < 0).sum() > 1:
        return "shown"
    if len(clear) == 1:
        return "in_part"
    if clear.empty and (table["high"] < seen["share_of_needles"]).all():
        return "excluded"
    return "undecided"
