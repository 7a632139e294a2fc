"""Versions of one model, made sparser by hand: does RetMask help sparser models more?"""

import math
from collections import Counter
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rmutils import stats
from rmutils.book.experiments import planned_runs
from rmutils.core.config import Config
from rmutils.core.experiment import Experiment, Plan
from rmutils.core.paths import cache_dir
from rmutils.core.results import Artifact, Compute, write_tables
from rmutils.evaluation.answers import find_needles
from rmutils.heads import HeadScores, mask_heads, sparsity
from rmutils.heads.detection import even_depths, load, run_cases, save
from rmutils.heads.masking import scaled_outputs
from rmutils.heads.scores import Head
from rmutils.models import identify, load_model
from rmutils.pipeline.retmask import RetMaskConfig

CASE = ["needle", "length", "depth", "success"]


class SparsityConfig(Config):
    """One run: a design, and what is done to it."""

    base: str
    """The model that all designs are made from."""
    retrieval: tuple[Head, ...]
    """Its retrieval heads."""
    kept: tuple[Head, ...]
    """Those of them that keep their queries."""
    arm: str
    """A strategy, or `before`: the design itself."""
    retmask: RetMaskConfig
    """Settings of the trainings, with the seed; its cases are the outcome."""
    factors: tuple[float, ...]
    """By how much the columns of W_o of the kept heads may be scaled, besides 1."""
    found: tuple[float, float]
    """Share of needles that a design finds."""

    @property
    def model(self) -> str:
        """Name of the design."""
        return f"{len(self.kept)} of {len(self.retrieval)} heads"


@dataclass(frozen=True)
class SparsityAndGain:
    """The stored runs of the plan."""

    cases: pd.DataFrame  # `model`, `arm`, `seed`, `needle`, `length`, `depth`, `success`
    scores: dict[str, HeadScores]  # of each design before training
    # `model`, `factor` (by which the kept heads' outputs are scaled), `retrieval_heads`.
    facts: pd.DataFrame
    artifacts: list[Artifact]
    # `planned`, `done`: Training runs by arm, without those of designs that were left out.
    planned: Counter[str]
    done: Counter[str]
    deviations: list[str]  # what is not as the plan says


def planned(plan: Plan) -> list[SparsityConfig]:
    """Return all runs in the order in which they are made, a design before its trainings."""
    p = plan.content
    designs, training = p["designs"], p["training"]
    method = RetMaskConfig().changed({
        "instructions": p["pairs"]["instructions"], "tau": p["pairs"]["tau"],
        "responses.max_new_tokens": p["pairs"]["max_new_tokens"],
        "detect.lengths": tuple(p["needles"]["lengths"]),
        "detect.depths": even_depths(p["needles"]["depths"]),
        "detect.max_new_tokens": p["needles"]["max_new_tokens"],
        "recipe.max_steps": training["steps"],
        "recipe.learning_rate": training["learning_rate"],
        "recipe.min_learning_rate": training["min_learning_rate"]})
    heads = tuple(map(tuple, designs["retrieval_heads"]))
    runs = []
    for arm, count in product(p["arms"], designs["kept"]):
        drawn = np.random.default_rng(count).choice(len(heads), count, replace=False)
        design = SparsityConfig(
            base=designs["model"], retrieval=heads, kept=tuple(heads[i] for i in sorted(drawn)),
            arm=planned_runs.BEFORE, retmask=method, factors=tuple(designs["factors"]),
            found=tuple(designs["found"]))
        if arm == p["arms"][0]:
            runs.append(design)
        runs += [design.changed({"arm": arm, "retmask.seed": seed, "retmask.strategy": arm})
                 for seed in range(p["seeds"])]
    return runs


def _make(config: SparsityConfig, folder: Path) -> dict[str, Any]:
    """Write a design's detection, or the table `cases` after a training."""
    if config.arm != planned_runs.BEFORE:
        before = config.changed({"arm": planned_runs.BEFORE, "retmask.seed": 0,
                                 "retmask.strategy": planned_runs.RETMASK})
        facts = SPARSITY_AND_GAIN.obtain(before).manifest["facts"]
        where, _ = make_design(before)
        cases = find_needles(planned_runs.train_on_pairs(where, config.retmask),
                             config.retmask.detect)
        write_tables({"cases": cases[CASE]}, folder)
        return facts | {"weights": identify(str(where))}
    try:
        where, factor = make_design(config)
    except planned_runs.NoSnapshot as error:
        write_tables({"cases": pd.DataFrame(columns=CASE)}, folder)
        return {"left_out": str(error)}
    lm = load_model(str(where))
    runs, cases = run_cases(lm, config.retmask.detect)
    scores = HeadScores(runs[cases["success"]], lm.name, cases=cases)
    save(scores, folder)
    heads = scores.select(tau=config.retmask.tau)
    facts = {"factor": factor, "weights": identify(str(where)), "heads": heads}
    return facts if heads else facts | {
        "left_out": f"The design with {config.model} has no retrieval head: it is left out."}


SPARSITY_AND_GAIN = Experiment[SparsityConfig, Artifact](
    name="sparsity-and-gain", config=SparsityConfig, plan="sparsity_and_gain", planned=planned,
    keys=("model", "arm", "retmask.seed"), make=_make, label=planned_runs.label_of_arm,
    inputs=lambda run: {"model": identify(run.base)},
    notebook="05_score_distribution", parameter="compute_sparsity")


def make_design(config: SparsityConfig) -> tuple[Path, float]:
    """Make a design, unless it is there; return its folder and by how much its heads are scaled."""
    home = cache_dir() / "models" / f"sparsity-{config.changed({'retmask.seed': 0}).digest()[:16]}"
    if there := sorted(home.glob("factor-*/model.safetensors")):
        return there[0].parent, float(there[0].parent.name.partition("-")[2])
    lm = load_model(config.base)
    low, high = config.found
    with mask_heads(lm, set(config.retrieval) - set(config.kept), "query"):
        todo = [1.0]
        while todo:
            factor = todo.pop(0)
            with scaled_outputs(lm, config.kept, factor):
                share = find_needles(lm, config.retmask.detect)["success"].mean()
                if low <= share <= high:
                    folder = home / f"factor-{factor:g}"
                    lm.tokenizer.save_pretrained(folder)
                    lm.model.save_pretrained(folder)
                    return folder, factor
            if factor == 1:
                todo = (sorted((f for f in config.factors if f < 1), reverse=True)
                        if share > high else sorted(f for f in config.factors if f > 1))
    raise planned_runs.NoSnapshot(f"The design with {config.model} never found {low:.0%} to "
                                  f"{high:.0%} of the needles: it is left out.")


def sparsity_and_gain(*, compute: Compute = "never") -> SparsityAndGain | None:
    """Collect the stored runs, and make the missing ones unless `compute="never"`."""
    runs = SPARSITY_AND_GAIN.collect(compute=compute)
    before = {model: one for (model, arm, _), one in runs.stored.items() if arm
              == planned_runs.BEFORE}
    done = Counter(arm for _, arm, _ in runs.stored if arm != planned_runs.BEFORE)
    if not done:
        return None
    facts = {model: artifact.manifest["facts"] for model, artifact in before.items()}
    return SparsityAndGain(
        runs.table("cases")[["model", "arm", "seed", *CASE]],
        {model: load(artifact.folder, model) for model, artifact in before.items()}, pd.DataFrame([
            {"model": model, "factor": one["factor"], "retrieval_heads": len(one["heads"])}
            for model, one in facts.items()]), runs.artifacts,
        Counter(arm for model, arm, _ in runs.planned
                if arm != planned_runs.BEFORE and model not in runs.left_out), done,
        [*runs.deviations, *planned_runs.other_weights(runs)])


PRIMARY = "hoyer"
ASSUMED_ERROR = 2.0  # standard error of a gain, in points, that the plan reckoned with


def points(result: SparsityAndGain, base: str = planned_runs.BEFORE,
           statistic: str = PRIMARY) -> pd.DataFrame:
    """Sparsity before RetMask and the gain by it, design by design."""
    rows, between = [], []
    for model, part in result.cases.groupby("model", sort=False):
        found = {arm: of_arm.pivot_table(index="needle", columns="seed", values="success",
                                         aggfunc="mean") for arm, of_arm in part.groupby("arm")}
        if not {planned_runs.BEFORE, planned_runs.RETMASK, base} <= found.keys():
            continue
        ours, theirs = found[planned_runs.RETMASK], found[base]
        seeds = ours.columns
        if base != planned_runs.BEFORE:
            seeds = seeds.intersection(theirs.columns)
        if len(seeds) < 2:
            continue
        gains = 100 * (ours[seeds].to_numpy() - (
            theirs.to_numpy() if base == planned_runs.BEFORE else theirs[seeds].to_numpy()))
        scores = result.scores[model]
        spread = scores.statistic(sparsity.statistics()[statistic], bounds=stats.SHARE)
        between.append(gains.mean(0).var(ddof=1))
        rows.append({
            "model": model, "found": found[planned_runs.BEFORE].to_numpy().mean(),
            "sparsity": spread.value, "sparsity_low": spread.low, "sparsity_high": spread.high,
            "gain": gains.mean(), "of_needles": gains.mean(1).var(ddof=1) / len(gains),
            "seeds": len(seeds)})
    if not rows:
        return pd.DataFrame()
    table = pd.DataFrame(rows)
    table["error"] = np.sqrt(table.pop("of_needles") + np.mean(between) / table.pop("seeds"))
    reach = stats.half_width(table["error"])
    table["gain_low"], table["gain_high"] = table["gain"] - reach, table["gain"] + reach
    return table


@dataclass(frozen=True)
class AcrossDesigns:
    """What the designs say together."""

    spread: stats.Heterogeneity  # of the gains
    tau: float  # standard deviation of the true gains, points
    r: stats.Interval  # correlation of gain and sparsity


def answer(table: pd.DataFrame) -> AcrossDesigns:
    """Test whether gains differ between designs, and correlate them with sparsity."""
    gains, errors = table["gain"], table["error"]
    return AcrossDesigns(stats.heterogeneity(gains, errors),
                         math.sqrt(stats.tau_squared(gains, errors)),
                         stats.correlation(table["sparsity"], gains, errors))


def smallest_effect(*, designs: int, error: float, experiments: int = 400, seed: int = 0) -> float:
    """The smallest spread of true gains that the planned test is likely to relate to sparsity."""
    draw = np.random.default_rng(seed)
    x, noise = draw.normal(size=(2, experiments, designs))
    x = (x - x.mean(1, keepdims=True)) / x.std(1, ddof=1, keepdims=True)
    errors = np.full(designs, error)
    for effect in np.arange(1, 61) / 2:
        gains = effect * x + error * noise
        shown = [stats.heterogeneity(y, errors).p < 1 - stats.LEVEL and
                 stats.correlation(one, y, errors, resamples=200).low > 0
                 for one, y in zip(x, gains, strict=True)]
        if np.mean(shown) >= stats.POWER:
            return float(effect)
    return math.nan
