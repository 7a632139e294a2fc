"""Measures of the larger models, from results of the plan `data/plans/real_models.yml`.

The quantities of the other modules take these models, too, and find their results here. Two seeds
do not tell how much training runs differ: intervals are over needles or questions, as planned.
"""

from __future__ import annotations

from functools import cache

import pandas as pd

from rmutils.book.chapters.masking_sweep.experiment import scored
from rmutils.book.chapters.training_effect.real_training import SEEDS, RealTraining, real_training
from rmutils.book.experiments import planned_runs
from rmutils.book.experiments.masked_needles import COPY, NEWEST, count_at
from rmutils.book.experiments.needles_left import compare_controls
from rmutils.book.experiments.planned_runs import BEFORE, RETMASK
from rmutils.book.experiments.real_models import detection, masking_stored, real_models
from rmutils.book.experiments.real_tasks import (
    LENGTH,
    WHOLE,
    difference,
    tasks_by_state,
)
from rmutils.book.verdicts import CannotShow, Effect, blind_spot
from rmutils.core.errors import NotStored, UserError, unknown
from rmutils.core.results import Artifact
from rmutils.evaluation.abilities.ability_tasks import TASKS
from rmutils.heads.detection import detect_stored
from rmutils.heads.scores import HeadScores
from rmutils.models.known_models import tau_of
from rmutils.stats import Interval

LARGER = ("gemma3-270m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")
"""The models of the plan on which the book has no other detection with a claim."""
TRAINED = planned_runs.LARGER_MODELS


def detection_of(model: str) -> tuple[HeadScores, Artifact, float]:
    """Return the scores that claims about a model's heads rest on, where they are stored, and the
    threshold: the plan's, or that of the model's family."""
    if model not in LARGER:
        return *scored(model, compute="never"), tau_of(model)
    plan = real_models()
    return *detect_stored(model, detection(plan), compute="never"), plan.content["tau"]


def needles_lost(model: str, control: str) -> Effect:
    """Needles found without a control's heads minus those found without all heads at or above tau,
    masked at the newest position.
    """
    scores, detected, tau = detection_of(model)
    result, artifact = masking_stored(model, compute="never")
    length = real_models().content["masking"]["length"]["default"]
    count = count_at(scores, tau)
    rows = result.answers.assign(model=model)[lambda rows: (
        (rows["length"] == length) & (rows["position"] == NEWEST)
        & rows["score"].isin(["", COPY]) & rows["count"].isin([0, count]))]
    table, names = compare_controls(rows, control), (artifact.name, detected.name)
    unit = "share of answers"
    if table.empty:
        raise CannotShow(f"{count} of {scores.mean.size} heads reach τ: there are not as many "
                         "others", unit, names)
    row, = table.itertuples()
    blind = ("" if row.readable else f"the whole model finds {row.whole:.0%} of the needles, and "
             "the plan reads it from a third on")
    masks = result.maskings
    moved = masks.loc[(masks["policy"] == control) & (masks["count"] == count), "displaced"].mean()
    note = f"{row.draws} random choices of {count} heads" + (
        f", of which {moved:.1f} on average come from another layer" if moved else "")
    return Effect.of(Interval(row.difference, row.low, row.high), unit, names,
                     rows["needle"].nunique(), note, blind)


def score_lost(model: str) -> Effect:
    """Score on long-context tasks with other heads of the same layers masked, minus that with the
    heads that copy most masked; mean over the data sets that a pilot left."""
    states = tasks_by_state(model)
    row, whole = states.effects().iloc[0], states.answers[WHOLE]  # the primary comparison
    return Effect.of(Interval(row.value, row.low, row.high), "points",
                     [artifact.name for artifact in states.artifacts], len(whole),
                     _data_sets(whole), blind_spot(_mean(whole), 0, "the mean", ceiling=False))


def _mean(table: pd.DataFrame) -> float:
    return float(table.groupby("dataset")["score"].mean().mean())


def _data_sets(table: pd.DataFrame) -> str:
    """Name them: a pilot left those with room in both directions."""
    return f"{', '.join(table['dataset'].unique())}, at {LENGTH:,} tokens"


@cache
def _collected() -> RealTraining:
    """What is stored of the training, read once."""
    return real_training()


def trained(model: str) -> RealTraining:
    """Return the runs and what was asked after them."""
    found = _collected()
    if len(found.pairs) < len(SEEDS):
        raise NotStored(f"{len(found.missing)} of the runs planned on {model} have not been made. "
                        f"The first is made by `{found.missing[0]}`.")
    return found


def masked_heads_beyond(model: str, strategy: str) -> Effect:
    """Score of the masked heads after RetMask minus that after its control, as planned."""
    found, against = trained(model), _arm(strategy)
    row = found.scores().set_index(["against", "seed"]).loc[(against, "both")]
    return _effect(Interval(*row[["value", "low", "high"]]), "score", found,
                   found.pairs[0][0].before.cases["needle"].nunique())


def task_change(model: str, strategy: str, base: str, length: int | None = None) -> Effect:
    """Score on tasks after a training minus that before it, or after another."""
    if length not in (None, LENGTH):
        raise UserError(f"tasks of {model} are asked at {LENGTH:,} tokens, not at {length:,}.")
    parts = _outcome(model, "tasks", strategy, base)
    before = _outcome(model, "tasks", BEFORE, BEFORE)[0][0]
    return _effect(difference(parts, "score", "sample", "dataset").interval, "points",
                   trained(model), len(before), _data_sets(before) + "; ",
                   blind_spot(_mean(before), 0, "the mean"))


def general_change(model: str) -> Effect:
    """Score in general abilities after RetMask minus that before it, mean over the tasks that could
    have moved: tasks at the ceiling count, as little is claimed to be lost."""
    parts = _outcome(model, "abilities", RETMASK, BEFORE)
    blind = {task: blind_spot(mean, TASKS[f"book/{task}"].chance, task, ceiling=False)
             for task, mean in parts[0][1].groupby("task", sort=False)["score"].mean().items()}
    heard = [task for task, why in blind.items() if not why]
    if not heard:
        raise CannotShow("; ".join(blind.values()), "points", ())
    kept = [(one[one["task"].isin(heard)], other[other["task"].isin(heard)])
            for one, other in parts]
    return _effect(difference(kept, "score", "sample", "task").interval, "points",
                   trained(model), len(kept[0][1]),
                   f"{len(heard)} of {len(blind)} tasks: {', '.join(heard)}; ")


def _outcome(
    model: str, outcome: str, strategy: str, base: str
) -> list[tuple[pd.DataFrame, pd.DataFrame]]:
    """Tables of both models, a pair for each seed."""
    found = trained(model).outcomes
    keys = [[(outcome, _arm(arm), 0 if arm == BEFORE else seed) for arm in (strategy, base)]
            for seed in SEEDS]
    if any(key not in found for pair in keys for key in pair):
        raise NotStored(f"not all {outcome} of {model} after its training are stored. They are "
                        "made by `rmutils run 06_training_effect -p compute_real auto`.")
    return [(found[one], found[other]) for one, other in keys]


def _arm(strategy: str) -> str:
    arms = (BEFORE, RETMASK, planned_runs.MATCHED)
    if strategy not in arms:
        raise UserError(unknown(f"strategy {strategy!r} in the plan of larger models", arms))
    return strategy


def _effect(
    found: Interval, unit: str, training: RealTraining, clusters: int, over: str = "",
    blind: str = "",
) -> Effect:
    cases = "needles" if unit == "score" else "questions"
    return Effect.of(found, unit, [one.name for one in training.artifacts],
                     clusters, f"{over}{len(SEEDS)} seeds, interval over {cases}", blind)
