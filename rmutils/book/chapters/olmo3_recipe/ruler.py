"""RULER before and after an extension: the models of the plan, with YaRN and without it."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from rmutils.core.config import Config
from rmutils.core.experiment import Experiment, Plan
from rmutils.core.results import JOURNAL, Artifact, write_tables
from rmutils.evaluation.helmet import EvaluateConfig, evaluate
from rmutils.longcontext.extension import Extended
from rmutils.models import identify, load_model

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


def scores(compute: str = "never") -> pd.DataFrame:
    """Return a row per stored answer: `model`, `arm`, `kind`, and those of `evaluate`."""
    runs = RULER.collect(compute=compute)
    return runs.table("scores").assign(kind=lambda table: table["dataset"].map(kind))
