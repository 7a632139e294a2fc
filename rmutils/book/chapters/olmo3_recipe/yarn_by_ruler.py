"""RULER before and after an extension: the models of the plan, with YaRN and without it."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from rmutils.core.config import Config
from rmutils.core.experiment import Experiment, Plan, Runs
from rmutils.core.results import JOURNAL, Artifact, Compute, write_tables
from rmutils.evaluation.helmet import EvaluateConfig, evaluate
from rmutils.longcontext.extension import Extended
from rmutils.models import identify, load_model
from rmutils.stats import MORE_POINTS, POINTS, contrast, holm, interval

TRAINED, YARN = "as trained", "YaRN"
FLOOR = 10  # points; below it, the plan says, two arms cannot be compared
KINDS = {"niah": "needles", "vt": "variables", "cwe": "words", "fwe": "words", "qa": "documents"}
"""Beginning of a task's name -> kind of task."""


class RulerConfig(Config):
    """One run: a model in one arm."""

    model: str
    arm: str
    """A key of the plan's arms."""
    evaluate: EvaluateConfig
    """Questions, and the positions with which they are answered."""


def planned(plan: Plan) -> Iterator[RulerConfig]:
    """Yield each model as trained and with YaRN."""
    p = plan.content
    for model, own in p["models"].items():
        for arm, how in p["arms"].items():
            config = EvaluateConfig(datasets=(p["tasks"],), lengths=own["lengths"],
                                    samples=own["samples"], seed=p["seed"])
            yield RulerConfig(model=model, arm=arm, evaluate=config.changed(
                {"variant": Extended(trained=own["trained"], **how)} if how else {}))


def _make(run: RulerConfig, folder: Path) -> dict[str, int]:
    """Write the table of `rmutils.evaluation.helmet.evaluate`."""
    table = evaluate(load_model(run.model), run.evaluate, journal=folder / JOURNAL)
    write_tables({"scores": table}, folder)
    return {"answers": len(table)}


RULER = Experiment[RulerConfig, Artifact](
    name="ruler", config=RulerConfig, plan="ruler", planned=planned, keys=("model", "arm"),
    make=_make, label=lambda run: run.arm.replace(" ", "-").lower(),
    inputs=lambda run: {"model": identify(run.model)},
    notebook="14_olmo3_recipe", parameter="compute_ruler")


def kind(task: str) -> str:
    """Return what a task of RULER is about."""
    return KINDS[task.partition("_")[0]]


def ruler_scores(compute: Compute = "never") -> tuple[pd.DataFrame | None, Runs]:
    """Return a row per answer (`model`, `arm`, `kind`, `question`, `length`, `score`), and runs.

    A question has one name at all lengths, where it is about the same needle or words.
    """
    runs = RULER.collect(compute=compute)
    if not runs.stored:
        return None, runs
    table = runs.table("scores")
    return table.assign(kind=table["dataset"].map(kind),
                        question=table["dataset"] + " " + table["sample"].astype(str)), runs


def means(table: pd.DataFrame, *by: str) -> pd.DataFrame:
    """Return the RULER score of each model and arm, with its interval over questions."""
    keys = ["model", "arm", *by]
    return pd.DataFrame([
        dict(zip(keys, key, strict=True))
        | interval(part["score"], part["question"], bounds=POINTS)._asdict()
        for key, part in table.groupby(keys, sort=False)])


def differences(table: pd.DataFrame) -> pd.DataFrame:
    """Compare YaRN with the model as trained on the same questions, for each model.

    `answered` is the share of questions that get points in either arm; `floor` says whether both
    arms stay below the plan's least score.
    """
    rows = []
    for model, part in table.groupby("model", sort=False):
        wide = part.pivot(index=["question", "length"], columns="arm", values="score")
        if {*wide} != {TRAINED, YARN}:
            continue
        found = contrast(wide[YARN] - wide[TRAINED], wide.index.get_level_values("question"),
                         bounds=MORE_POINTS)
        rows.append({"model": model, **found.columns, "questions": found.clusters,
                     "smallest_effect": found.smallest_effect,
                     "answered": (wide > 0).any(axis=1).mean(),
                     "floor": bool((wide.mean() < FLOOR).all())})
    models = len(RULER.read_plan().content["models"])
    return (pd.DataFrame(rows).assign(p_holm=lambda one: holm(one["p"], models)) if rows
            else pd.DataFrame())
