"""What the chapter on the main tables says of scores on long texts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import pandas as pd

from rmutils.book.chapters.main_tables.experiment import Evaluated, evaluated, gains
from rmutils.book.claims import pooled_leads
from rmutils.book.claims.effects import task_effects
from rmutils.book.experiments import real_tasks
from rmutils.book.experiments.planned_runs import BEFORE, RETMASK
from rmutils.book.findings.registry import UNDECIDED, Measured, declare
from rmutils.book.verdicts import ALPHA, SHOWN, Claimed, answers
from rmutils.core.errors import NotStored
from rmutils.models.loading import corpus_of
from rmutils.preference.strategies import STRATEGIES
from rmutils.stats import Interval, holm

GAINS, REAL = "fig-gains", "fig-real-tasks"


@cache
def evaluations(model: str, strategies: tuple[str, ...]) -> Evaluated:
    """Look up what a model scores before and after its trainings."""
    return evaluated(model, task_effects.EVALUATIONS[corpus_of(model)], strategies)


def _row(table: pd.DataFrame, model: str, strategy: str) -> pd.Series:
    rows = table[table["strategy"] == strategy] if len(table) else table
    if rows.empty:
        raise NotStored(f"{model} is not evaluated after {STRATEGIES[strategy].name} with all its "
                        "seeds.")
    return rows.iloc[0]


def _measured(row: pd.Series, found: Evaluated, **words: object) -> Measured:
    return Measured(Interval(*row[["effect", "low", "high"]].astype(float)),
                    [artifact.name for artifact in found.artifacts], int(row["clusters"]),
                    row["p_holm"], words=words)


@declare("score-gain", unit="points", place=GAINS, otherwise=(
    "{strategy} changes the score of {model} on long texts by {value} points {ci}: {verdict}."))
def score_gain(model: str, strategies: tuple[str, ...], strategy: str = RETMASK) -> Measured:
    """Mean over categories and lengths after a training, minus before; p over the trainings."""
    found = evaluations(model, strategies)
    return _measured(_row(gains(found), model, strategy), found, model=model,
                     strategy=STRATEGIES[strategy].name)


def counted(tables: Iterable[pd.DataFrame]) -> dict[str, int]:
    """Count comparisons: better and worse with p corrected, by their intervals alone, and all."""
    rows = pd.concat(tables)
    sure = rows["p_holm"] <= ALPHA
    above, below = rows["low"] > 0, rows["high"] < 0
    return {"better": int((sure & above).sum()), "worse": int((sure & below).sum()),
            "above": int(above.sum()), "below": int(below.sum()), "all": len(rows)}


@declare("score-gain-with-room", unit="points", place="fig-leads", otherwise=(
    "Over the categories with room, RetMask changes the score of {model} by {value} points {ci}: "
    "{verdict}."))
def score_gain_with_room(model: str) -> Measured:
    """Gain by RetMask over the categories that could have moved; p corrected for four models."""
    effects = {name: task_effects.gain(name) for name in pooled_leads.MODELS}
    judged = dict(zip(effects, answers([(one, Claimed(above=0)) for one in effects.values()]),
                      strict=True))[model]
    one = effects[model]
    return Measured(Interval(one.value, one.low, one.high), one.artifacts, one.clusters, judged.p,
                    None if judged.verdict == SHOWN else UNDECIDED, {"model": model})


@cache
def tasks_lost() -> dict[str, pd.Series]:
    """Compare the score without top heads with that without others of their layers, for each model;
    p is corrected for the models."""
    rows = {}
    for model in real_tasks.MODELS:
        try:
            rows[model] = real_tasks.tasks_by_state(model).effects().iloc[0]
        except NotStored:
            continue
    corrected = holm([row["p"] for row in rows.values()], len(real_tasks.MODELS))
    return {model: pd.Series({**row, "p_holm": p})
            for (model, row), p in zip(rows.items(), corrected, strict=True)}


@declare("task-points-lost", unit="points", place=REAL, otherwise=(
    "Without its top heads, {model} loses {value} points more of its score on long texts {ci} than "
    "without others of the same layers: {verdict}."))
def task_points_lost(model: str) -> Measured:
    """Score without others of the same layers, minus without the heads that copy most."""
    if model not in (found := tasks_lost()):
        raise NotStored(f"The tasks of {model} are not stored. `rmutils run 03_main_tables -p "
                        "compute_real auto` makes them.")
    row = found[model]
    used = [artifact.name for artifact in real_tasks.tasks_by_state(model).artifacts]
    return Measured(Interval(*row[["value", "low", "high"]].astype(float)), used, None,
                    row["p_holm"], words={"model": model})


def leads_by_model() -> pd.DataFrame:
    """Return RetMask minus other heads and minus no training, model by model and pooled.

    Columns: `group`, `label`, `value`, `low`, `high`.
    """
    table, _ = pooled_leads.beside_controls()
    table = table[table["against"].isin([pooled_leads.OTHER_HEADS, BEFORE])]
    groups = {pooled_leads.OTHER_HEADS: "minus training with other heads masked",
              BEFORE: "minus no training"}
    pooled = f"pooled over {len(pooled_leads.leads(BEFORE))} models"
    return table.assign(group=table["against"].map(groups),
                        label=table["model"].replace("", pooled))
