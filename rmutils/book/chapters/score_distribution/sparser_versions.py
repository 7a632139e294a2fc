"""Versions of one model, made sparser by hand, and RetMask on each of them.

`rmutils run 05_score_distribution -p compute_sparsity auto` makes the planned runs that are
missing, in the order of `data/plans/sparsity_and_gain.yml`. A stopped run goes on, and weights stay
in the user's cache.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rmutils.book.experiments.planned_runs import (
    BEFORE,
    RETMASK,
    NoSnapshot,
    Plan,
    collect,
    join_tables,
    train_on_pairs,
)
from rmutils.core.config import Config, command_line
from rmutils.core.errors import UserError
from rmutils.core.paths import cache_dir
from rmutils.core.results import Artifact, Compute, Stage, write_tables
from rmutils.evaluation.answers import find_needles
from rmutils.heads import HeadScores, mask_heads
from rmutils.heads.detection import even_depths, load, run_cases, save
from rmutils.heads.masking import scaled_outputs
from rmutils.heads.scores import Head
from rmutils.models import identify, load_model
from rmutils.pipeline.retmask import RetMaskConfig

SPARSITY_AND_GAIN = Stage("sparsity-and-gain", version=1)
CASE = ["needle", "length", "depth", "success"]


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
        return f"{len(self.kept)} of {len(self.retrieval)} heads"


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
    planned, done : Counter
        Trainings by arm, without those of designs that were left out.
    deviations : list of str
        What is not as the plan says.
    """

    cases: pd.DataFrame
    scores: dict[str, HeadScores]
    facts: pd.DataFrame
    artifacts: list[Artifact]
    planned: Counter[str]
    done: Counter[str]
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
