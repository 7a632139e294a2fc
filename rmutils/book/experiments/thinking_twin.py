"""A twin of tiny-olmo3 that thinks before it answers, trained by RetMask (section 4.4)."""

import re
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from rmutils.book.experiments.planned_runs import BEFORE, RETMASK, label_of_arm, planned_runs
from rmutils.core.config import Config
from rmutils.core.errors import NotStored
from rmutils.core.experiment import Experiment, Plan, load_plan
from rmutils.core.paths import cache_dir
from rmutils.core.results import JOURNAL, Artifact, write_tables
from rmutils.evaluation.helmet import EvaluateConfig, evaluate
from rmutils.evaluation.helmet.averages import samples_of
from rmutils.evaluation.helmet.evaluation import baselines_stored, evaluate_stored
from rmutils.models import identify
from rmutils.models.known_models import tau_of
from rmutils.models.teaching import RECIPES, TeachingRecipe, train
from rmutils.pipeline.retmask import RetMaskConfig, RetMaskSteps
from rmutils.training.compute_backend import ComputeBackend

TWIN, INSTRUCT = "tiny-olmo3-think", "tiny-olmo3"
THOUGHT_FIRST = re.compile(r"<think>\n(?:(?!</?think>).)+\n</think>\n\n(?:(?!</?think>).)+", re.S)
"""A thought, then an answer."""


class TwinConfig(Config):
    """One run: the twin, and what is done to it."""

    model: str
    """Name of the twin."""
    arm: str
    """A strategy, or `before`: the twin itself."""
    recipe: TeachingRecipe
    """How the twin is trained."""
    retmask: RetMaskConfig
    evaluation: EvaluateConfig


def twin_recipe(plan: Plan) -> TeachingRecipe:
    """Return the recipe of the twin: that of the model it begins with, changed."""
    twin = plan.content["twin"]
    return RECIPES[twin["begins"]].changed({**twin["recipe"], "begins": twin["begins"]})


def planned(plan: Plan) -> list[TwinConfig]:
    """Return all runs in the order in which they are made, the twin before training first."""
    p = plan.content
    asked = p["evaluation"]
    method = {(config.seed, config.strategy): config.changed({"tau": tau_of(p["instruct"])})
              for config in planned_runs(p["instruct"])}
    keys = [(p["seeds"][0], BEFORE), *product(p["seeds"], p["arms"])]
    return [TwinConfig(model=p["twin"]["model"], arm=arm, recipe=twin_recipe(plan),
                       retmask=method[seed, RETMASK if arm == BEFORE else arm],
                       evaluation=EvaluateConfig(**asked | {"lengths": tuple(asked["lengths"])}))
            for seed, arm in keys]


def _make(config: TwinConfig, folder: Path) -> dict[str, Any]:
    """Write the table `samples`, and of the twin itself `baselines`; the facts name its retrieval
    heads and say how many answers are a thought and an answer, or how many pairs there are."""
    home = str(train(config.recipe, cache_dir() / "models" / config.model))
    steps = RetMaskSteps(home, config.retmask, ComputeBackend())
    if config.arm == BEFORE:
        scores, _ = steps.detect()
        answers, _ = steps.generate(0, ())
        facts: dict[str, Any] = {
            "heads": scores.select(tau=config.retmask.tau), "weights": identify(home),
            "thought_first": float(answers["text"].str.fullmatch(THOUGHT_FIRST).mean())}
        found, _ = evaluate_stored(home, config.evaluation)
        write_tables({"baselines": baselines_stored(home, config.evaluation)[0]}, folder)
    else:
        pairs, _ = steps.pair(steps.mask())
        facts = {"pairs": len(pairs.table)}
        found = evaluate(steps.train(pairs.table)[0], config.evaluation, journal=folder / JOURNAL)
    write_tables({"samples": samples_of(found)}, folder)
    return facts


THINKING_TWIN = Experiment[TwinConfig, Artifact](
    name="thinking-twin", config=TwinConfig, plan="thinking_twin", planned=planned,
    keys=("model", "arm", "retmask.seed"), make=_make, label=label_of_arm,
    inputs=lambda run: {"begins": identify(str(run.recipe.begins))},
    notebook="04_reasoning_ablation", parameter="compute_twin")


@cache
def twin_artifact(arm: str = BEFORE, seed: int = 0) -> Artifact:
    """Look a run up."""
    experiment = THINKING_TWIN
    return experiment.obtain(experiment.runs()[TWIN, arm, seed], compute="never")


@cache
def twin_scores(strategy: str) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Return the twin's scores before training or after a strategy, with columns `strategy` and
    `seed`, and the names of the results; NotStored if a planned seed is missing."""
    seeds = [seed for _, arm, seed in THINKING_TWIN.runs() if arm == strategy]
    if not seeds:
        raise NotStored(f"no run of {strategy} is planned on {TWIN}.")
    found = [twin_artifact(strategy, seed) for seed in seeds]
    return pd.concat([pd.read_parquet(one.path("samples.parquet")).assign(
        strategy=strategy, seed=seed) for seed, one in zip(seeds, found, strict=True)]), tuple(
            one.name for one in found)


def twin_baselines() -> pd.DataFrame:
    """Return the twin's scores before training, beside those of answers that ignore the question.
    """
    return pd.read_parquet(twin_artifact().path("baselines.parquet"))


def twin_heads() -> set[tuple[int, int]]:
    """Return the twin's retrieval heads."""
    return {(layer, head) for layer, head in twin_artifact().manifest["facts"]["heads"]}


def twin_evaluation() -> EvaluateConfig:
    """Return how the twin is asked."""
    return planned(load_plan("thinking_twin"))[0].evaluation
