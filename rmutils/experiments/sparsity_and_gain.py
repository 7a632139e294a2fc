"""Does RetMask help sparser models more? Designs with equal parameters, and room for a gain.

All designs are one model, of which more or fewer retrieval heads no longer retrieve.

`rmutils run 05_score_distribution -p compute_sparsity auto` makes the planned runs that are
missing, in the order of `data/plans/sparsity_and_gain.yml`. A stopped run goes on, and weights stay
in the user's cache.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from rmutils.core.config import Config, command_line
from rmutils.core.errors import UserError
from rmutils.core.paths import cache_dir
from rmutils.core.results import Artifact, Compute, Stage, write_tables
from rmutils.evaluation.answers import find_needles
from rmutils.experiments.designs import (
    Heterogeneity,
    correlation,
    heterogeneity,
    tau_squared,
)
from rmutils.experiments.snapshots import (
    RETMASK,
    NoSnapshot,
    collect,
    join_tables,
    train_on_pairs,
)
from rmutils.heads import HeadScores, mask_heads, sparsity
from rmutils.heads.detection import even_depths, load, run_cases, save
from rmutils.heads.masking import scaled_outputs
from rmutils.heads.scores import Head
from rmutils.models import identify, load_model
from rmutils.pipeline.planned_runs import BEFORE, Plan
from rmutils.pipeline.retmask import RetMaskConfig
from rmutils.stats import LEVEL, POWER, SHARE, Interval

SPARSITY_AND_GAIN = Stage("sparsity-and-gain", version=1)
PRIMARY = "hoyer"
CASE = ["needle", "length", "depth", "success"]
Z = float(norm.ppf((1 + LEVEL) / 2))


class SparsityConfig(Config):
    """One run: a design, and what is done to it.

    A design is a model of which some retrieval heads no longer retrieve: their queries are zero.
    What the others write is scaled, so that the design finds part of the needles.
    """

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
        return f"{len(self.kept)} heads kept"


@dataclass(frozen=True)
class SparsityAndGain:
    """The stored runs of the plan.

    Attributes
    ----------
    cases : DataFrame
        `model`, `arm`, `seed`, `needle`, `length`, `depth`, `success`.
    scores : dict of str to HeadScores
        Of each design before training.
    facts : DataFrame
        `model`, `factor` (by which the kept heads' outputs are scaled), `retrieval_heads`.
    artifacts : list of Artifact
    planned, done : dict of str to int
        Trainings by arm, without those of designs that were left out.
    deviations : list of str
        What is not as the plan says.
    """

    cases: pd.DataFrame
    scores: dict[str, HeadScores]
    facts: pd.DataFrame
    artifacts: list[Artifact]
    planned: Mapping[str, int]
    done: Mapping[str, int]
    deviations: list[str]


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
            arm=BEFORE, retmask=method, factors=tuple(designs["factors"]),
            found=tuple(designs["found"]))
        if arm == p["arms"][0]:
            runs.append(design)
        runs += [design.changed({"arm": arm, "retmask.seed": seed, "retmask.strategy": arm})
                 for seed in range(p["seeds"])]
    return runs


def run_stored(config: SparsityConfig, plan: Plan, *, compute: Compute = "auto") -> Artifact:
    """Make one run, or look it up.

    A design's files are those of a detection. A training's is the table `cases` of
    `SparsityAndGain`. The facts name the plan, and the factor, weights and retrieval heads of the
    design, or why it is left out, which is stored, too.

    Raises
    ------
    NotStored
        It is not stored and `compute="never"`.
    UserError
        The design is left out.
    """
    def design(folder: Path) -> dict[str, Any]:
        try:
            where, factor = make_design(config)
        except NoSnapshot as error:
            write_tables({"cases": pd.DataFrame(columns=CASE)}, folder)
            return {"plan": plan.digest, "left_out": str(error)}
        lm = load_model(str(where))
        runs, cases = run_cases(lm, config.retmask.detect)
        scores = HeadScores(runs[cases["success"]], lm.name, cases=cases)
        save(scores, folder)
        heads = scores.select(tau=config.retmask.tau)
        facts = {"plan": plan.digest, "factor": factor, "weights": identify(str(where)),
                 "heads": heads}
        return facts if heads else facts | {
            "left_out": f"The design with {config.model} has no retrieval head: it is left out."}

    def training(folder: Path) -> dict[str, Any]:
        before = config.changed({"arm": BEFORE, "retmask.seed": 0, "retmask.strategy": RETMASK})
        facts = run_stored(before, plan).manifest["facts"]
        where, _ = make_design(before)
        cases = find_needles(train_on_pairs(where, config.retmask), config.retmask.detect)
        write_tables({"cases": cases[CASE]}, folder)
        return facts | {"plan": plan.digest, "weights": identify(str(where))}

    artifact = SPARSITY_AND_GAIN.obtain_folder(
        config, {"model": identify(config.base)}, design if config.arm == BEFORE else training,
        compute=compute, model=config.model,
        label=config.arm if config.arm == BEFORE else f"{config.arm}-seed{config.retmask.seed}",
        command=command_line("run", "05_score_distribution", "-p", "compute_sparsity", "auto"))
    if reason := artifact.manifest["facts"].get("left_out"):
        raise UserError(reason)
    return artifact


def make_design(config: SparsityConfig) -> tuple[Path, float]:
    """Make a design, unless it is there; return its folder and by how much its heads are scaled.

    The first look is at a factor of 1. If too many needles are found, smaller factors are tried,
    the largest first; if too few, larger ones.

    Raises
    ------
    NoSnapshot
        With none of the factors the design finds a share of the needles in the range.
    """
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
    raise NoSnapshot(f"The design with {config.model} never found {low:.0%} to {high:.0%} of the "
                     f"needles: it is left out.")


def sparsity_and_gain(plan: Plan, *, compute: Compute = "never") -> SparsityAndGain | None:
    """Collect the stored runs, and make the missing ones unless `compute="never"`.

    Returns
    -------
    SparsityAndGain or None
        None if no training is stored.
    """
    configs = planned(plan)
    runs, lost = collect(configs, lambda config: run_stored(config, plan, compute=compute))
    before = {config.model: artifact for config, artifact in runs if config.arm == BEFORE}
    done = Counter(config.arm for config, _ in runs if config.arm != BEFORE)
    if not done:
        return None
    facts = {model: artifact.manifest["facts"] for model, artifact in before.items()}
    scores = {model: load(artifact.folder, model) for model, artifact in before.items()}
    strangers = [f"{artifact.name} began with other weights than its design has."
                 for config, artifact in runs if config.model in facts and
                 artifact.manifest["facts"]["weights"] != facts[config.model]["weights"]]
    return SparsityAndGain(
        join_tables(runs, "cases")[["model", "arm", "seed", *CASE]], scores, pd.DataFrame([
            {"model": model, "factor": one["factor"], "retrieval_heads": len(one["heads"])}
            for model, one in facts.items()]),
        [artifact for _, artifact in runs],
        Counter(config.arm for config in configs
                if config.arm != BEFORE and config.model not in lost), done,
        [*plan.deviations(artifact for _, artifact in runs), *strangers, *lost.values()])


def points(
    result: SparsityAndGain, base: str = BEFORE, statistic: str = PRIMARY
) -> pd.DataFrame:
    """Sparsity before RetMask and the gain by it, design by design.

    The squared standard error of a gain is the variance of its needles over their number, plus the
    variance of its seeds, which is pooled over the designs, over theirs. All designs are asked for
    the same needles, so their gains differ by less than these errors say, if at all.

    Parameters
    ----------
    base : str
        `before`, or the arm that RetMask's needles are compared with, seeds paired.
    statistic : str
        One of `rmutils.heads.sparsity.statistics`.

    Returns
    -------
    DataFrame
        `model`, `found` (share of needles, before), `sparsity` with `_low` and `_high` (95 %, over
        needles), `gain` and `error` (points of 100), `gain_low` and `gain_high` (95 %).
    """
    rows, between = [], []
    for model, part in result.cases.groupby("model", sort=False):
        found = {arm: of_arm.pivot_table(index="needle", columns="seed", values="success",
                                         aggfunc="mean") for arm, of_arm in part.groupby("arm")}
        if BEFORE not in found or RETMASK not in found or base not in found:
            continue
        ours, theirs = found[RETMASK], found[base]
        seeds = ours.columns if base == BEFORE else ours.columns.intersection(theirs.columns)
        if len(seeds) < 2:
            continue
        gains = 100 * (ours[seeds].to_numpy() - (
            theirs.to_numpy() if base == BEFORE else theirs[seeds].to_numpy()))
        scores = result.scores[model]
        spread = scores.statistic(sparsity.statistics()[statistic], bounds=SHARE)
        between.append(gains.mean(0).var(ddof=1))
        rows.append({
            "model": model, "found": found[BEFORE].to_numpy().mean(),
            "sparsity": spread.value, "sparsity_low": spread.low, "sparsity_high": spread.high,
            "gain": gains.mean(), "of_needles": gains.mean(1).var(ddof=1) / len(gains),
            "seeds": len(seeds)})
    if not rows:
        return pd.DataFrame()
    table = pd.DataFrame(rows)
    table["error"] = np.sqrt(table.pop("of_needles") + np.mean(between) / table.pop("seeds"))
    table["gain_low"] = table["gain"] - Z * table["error"]
    table["gain_high"] = table["gain"] + Z * table["error"]
    return table


@dataclass(frozen=True)
class Answer:
    """What the designs say together.

    Attributes
    ----------
    spread : Heterogeneity
        Of the gains.
    tau : float
        Standard deviation of the true gains, points.
    r : Interval
        Correlation of gain and sparsity.
    """

    spread: Heterogeneity
    tau: float
    r: Interval


def answer(table: pd.DataFrame) -> Answer:
    """Test whether gains differ between designs, and correlate them with sparsity.

    Parameters
    ----------
    table : DataFrame
        As from `points`.
    """
    gains, errors = table["gain"], table["error"]
    return Answer(heterogeneity(gains, errors), math.sqrt(tau_squared(gains, errors)),
                  correlation(table["sparsity"], gains, errors))


def verdict(found: Answer, designs: int, plan: Plan) -> str:
    """Apply the plan's rule to all planned runs."""
    rule = "By the rule of the plan, "
    if designs < plan.content["test"]["fewest_designs"]:
        return f"{rule}{designs} designs are too few for a verdict."
    if found.spread.p >= plan.content["test"]["level"]:
        return (f"{rule}these designs could not have shown a relation: their gains do not differ "
                f"more than chance explains.")
    if found.r.low > 0:
        return f"{rule}sparser designs gain more."
    if found.r.high < 0:
        return f"{rule}sparser designs gain less."
    return f"{rule}it remains undecided whether sparser designs gain more."


def finding(result: SparsityAndGain, plan: Plan) -> str:
    """Say in a few sentences what was found; a verdict only if RetMask was run as planned."""
    done, planned_runs = result.done[RETMASK], result.planned[RETMASK]
    complete, table = done == planned_runs, points(result)
    if len(table) < plan.content["test"]["fewest_designs"]:
        told = (f"{len(table)} designs have a gain so far" if not complete else
                f"{len(table)} of the planned designs could be run")
        return f"{told}, too few to say whether sparser designs gain more."
    found = answer(table)
    differ = "more" if found.spread.p < plan.content["test"]["level"] else "no more"
    told = (f"Over {len(table)} designs with equal parameters, the gain by RetMask and the "
            f"sparseness of the retrieval scores correlate at {_signed(found.r.value, 2)} (95 % "
            f"interval {_signed(found.r.low, 2)} to {_signed(found.r.high, 2)}). The gains, from "
            f"{_signed(table['gain'].min(), 1)} to {_signed(table['gain'].max(), 1)} points, "
            f"differ {differ} than chance explains (Q = {found.spread.q:.1f} on "
            f"{found.spread.freedom} degrees of freedom, p = {found.spread.p:.2g}; the standard "
            f"deviation of the true gains is estimated at {found.tau:.1f} points).")
    if not complete:
        return (f"{told} These are {done} of {planned_runs} planned trainings, so there is no "
                f"verdict yet.")
    return f"{told} {verdict(found, len(table), plan)}"


def _signed(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".replace("-", "−")


def smallest_effect(
    *, designs: int, error: float, experiments: int = 400, seed: int = 0
) -> float:
    """The smallest spread of true gains that the planned test is likely to relate to sparsity.

    Simulated: true gains lie on a line over sparsity, and normal errors are added. The result is
    the first half point of their standard deviation at which four of five experiments both find
    that gains differ and an interval of r above zero; NaN if 30 points are too few.

    Parameters
    ----------
    error : float
        Standard error of a gain, points.
    """
    draw = np.random.default_rng(seed)
    x, noise = draw.normal(size=(2, experiments, designs))
    x = (x - x.mean(1, keepdims=True)) / x.std(1, ddof=1, keepdims=True)
    errors = np.full(designs, error)
    for effect in np.arange(1, 61) / 2:
        gains = effect * x + error * noise
        shown = [heterogeneity(y, errors).p < 1 - LEVEL and
                 correlation(one, y, errors, resamples=200).low > 0
                 for one, y in zip(x, gains, strict=True)]
        if np.mean(shown) >= POWER:
            return float(effect)
    return math.nan
