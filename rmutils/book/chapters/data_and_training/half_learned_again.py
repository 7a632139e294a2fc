"""Can RetMask teach what is half learned? The same training runs, asked 200 other needles."""

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from rmutils.book.chapters.data_and_training import half_learned
from rmutils.book.experiments import planned_runs
from rmutils.core.experiment import Experiment, Plan
from rmutils.core.results import Artifact, write_tables
from rmutils.heads import DetectConfig
from rmutils.heads.detection import inputs_of, run_cases
from rmutils.models import identify
from rmutils.models.known_models import tau_of
from rmutils.models.teaching import RECIPES
from rmutils.stats import DIFFERENCE, LEVEL, Interval, contrast, crossed_interval, holm

ALL = "all three"


class HalfLearnedAgainConfig(half_learned.SnapshotConfig):
    """Its cases choose the snapshot; others are the outcome."""

    asked: DetectConfig
    """The cases that are the outcome."""


def planned(plan: Plan) -> list[HalfLearnedAgainConfig]:
    """Return all runs in the order in which they are made, the snapshot of a model first."""
    p, asked, runs = plan.content, plan.content["asked"], []
    method = half_learned.method_of(p, tuple(asked["lengths"]), depths=5)
    shared = {"every": p["snapshot"]["every"], "found": tuple(p["snapshot"]["found"]),
              "asked": DetectConfig(lengths=tuple(asked["lengths"]), needle_set=asked["needle_set"],
                                    depths=tuple(asked["depths"]))}
    for model in p["models"]:
        own = method.changed({"tau": tau_of(model)})
        runs.append(HalfLearnedAgainConfig(model=model, arm=planned_runs.BEFORE, retmask=own,
                                           **shared))
        runs += [HalfLearnedAgainConfig(model=model, arm=arm, **shared,
                                        retmask=own.changed({"seed": seed, "strategy": arm}))
                 for seed, arm in product(range(p["seeds"]), p["arms"])]
    return runs


def _make(config: HalfLearnedAgainConfig, folder: Path) -> dict[str, Any]:
    """Write the table `cases`; the facts name the snapshot and its retrieval heads."""
    if config.arm == planned_runs.BEFORE:
        where, step, heads, lm, _ = half_learned.begin(config)
    else:
        _, where, step, heads = half_learned.begun(HALF_LEARNED_AGAIN, config)
        lm = planned_runs.train_on_pairs(where, config.retmask)
    write_tables({"cases": half_learned.scores_of_cases(*run_cases(lm, config.asked), heads)},
                 folder)
    return {"step": step, "weights": identify(str(where)), "heads": heads}


def _inputs(run: HalfLearnedAgainConfig) -> dict[str, str]:
    return {"recipe": RECIPES[run.model].digest()} | {
        name: text for name, text in inputs_of("", run.asked, "world").items() if name != "model"}


HALF_LEARNED_AGAIN = Experiment[HalfLearnedAgainConfig, Artifact](
    name="half-learned-again", config=HalfLearnedAgainConfig, plan="half_learned_again",
    planned=planned, keys=("model", "arm", "retmask.seed"), make=_make,
    label=planned_runs.label_of_arm,
    inputs=_inputs, notebook="09_data_and_training", parameter="compute_half_again")


@dataclass(frozen=True)
class Lead:
    """What RetMask has more than the control, in points of 100, 95 %, over needles and seeds."""

    interval: Interval
    p: float
    needles: int  # how many were asked


def leads(cases: pd.DataFrame, arm: str = planned_runs.RETMASK,
          base: str = planned_runs.MATCHED) -> dict[str, Lead]:
    """Compare two arms in each model, and in the mean of the models (`ALL`), needles found."""
    tables = {model: _differences(part, arm, base)
              for model, part in cases.groupby("model", sort=False)}
    found = {name: _lead(table) for name, table in {
        **tables, ALL: sum(tables.values()) / len(tables)}.items()}
    corrected = holm([found[model].p for model in tables])
    return {name: Lead(one.interval, p, one.needles) for (name, one), p in zip(
        found.items(), [*corrected, found[ALL].p], strict=True)}


def _differences(cases: pd.DataFrame, arm: str, base: str) -> pd.DataFrame:
    """Points of 100: a row per needle, the mean of its depths, and a column per seed."""
    ours, theirs = (100 * cases[cases["arm"] == name].pivot_table(
        index="needle", columns="seed", values="success") for name in (arm, base))
    return ours.sub(theirs[0], axis=0) if base == planned_runs.BEFORE else ours - theirs


def _lead(table: pd.DataFrame) -> Lead:
    low, high = DIFFERENCE
    return Lead(crossed_interval(table.to_numpy(), bounds=(100 * low, 100 * high)),
                contrast(table.to_numpy()).p, len(table))


def found_needles(cases: pd.DataFrame) -> pd.DataFrame:
    """All three comparisons of `leads`: `model`, `value`, `low`, `high`, and `comparison`."""
    return pd.DataFrame([
        {"model": model, "comparison": told, **lead.interval._asdict()}
        for told, arm, base in (("lead over control", planned_runs.RETMASK, planned_runs.MATCHED),
                                ("gain by RetMask", planned_runs.RETMASK, planned_runs.BEFORE),
                                ("gain by control", planned_runs.MATCHED, planned_runs.BEFORE))
        for model, lead in leads(cases, arm, base).items()])


def verdict(lead: Lead, plan: Plan) -> str:
    """Return the plan's word for the mean of all models: shown, excluded or undecided."""
    seen = 100 * plan.content["smallest_effect"]["share_of_needles"]
    low, high = lead.interval.low, lead.interval.high
    if lead.p < 1 - LEVEL and not low <= 0 <= high:
        return "shown"
    return "excluded" if low <= 0 <= high and max(-low, high) < seen else "undecided"
