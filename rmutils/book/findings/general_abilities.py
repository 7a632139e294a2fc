"""What the chapter says training costs elsewhere: abilities, copied answers, drift."""

from __future__ import annotations

import math
from functools import cache

import pandas as pd

from rmutils.book.chapters.general_abilities.experiment import (
    ALL,
    BEFORE,
    Abilities,
    at_a_constant,
    changes,
    drift_by_strategy,
    stored_abilities,
)
from rmutils.book.experiments import real_tasks
from rmutils.book.experiments.planned_runs import RETMASK
from rmutils.book.findings.registry import NONE, Measured, declare
from rmutils.core.errors import NotStored
from rmutils.corpora.world.knowledge import ON_TOPIC
from rmutils.evaluation.abilities import evaluate_abilities as drifts
from rmutils.evaluation.abilities.ability_tasks import tasks_of
from rmutils.models.loading import corpus_of
from rmutils.preference.strategies import STRATEGIES
from rmutils.stats import Interval, compare

CHANGES, COPIED, DRIFT, LARGER = ("fig-ability-changes", "copied-and-known", "fig-drift",
                                  "fig-real-abilities")
MODEL = "qwen2.5-coder-0.5b"
MAIN = (RETMASK, "smaller-model", "win-lose-pair", "non-retrieval-mask", "random-mask", "sft")
"""Strategies that a p is corrected for."""
HEART = "by heart"
NATS = 1000
"""Drift is told in nats per so many tokens."""


@cache
def abilities(model: str) -> Abilities:
    """Look up the answers of a model and its trainings."""
    found = stored_abilities(model)
    if (BEFORE, 0) not in found.artifacts or len(found.artifacts) < 2:
        raise NotStored(found.missing[0] if found.missing else
                        f"No training of {model} is planned.")
    return found


@cache
def without_room(model: str) -> tuple[str, ...]:
    """List the tasks in which a model could not lose anything."""
    constant = {task: kind.chance for task, kind in tasks_of(corpus_of(model)).items()}
    return tuple(at_a_constant(abilities(model).samples, constant))


@cache
def changed(model: str) -> pd.DataFrame:
    """Compare each training with the model before it, over tasks that could show a loss."""
    return changes(_able(model, (BEFORE, *MAIN)), BEFORE)


@cache
def leads(model: str) -> pd.DataFrame:
    """Compare RetMask with each other training, over the same tasks: RetMask minus the other."""
    found = compare(_able(model, MAIN).rename(columns={"task": "stratum"}), RETMASK)
    return found.assign(effect=-found["effect"], low=-found["high"], high=-found["low"])


def _able(model: str, strategies: tuple[str, ...]) -> pd.DataFrame:
    rows = abilities(model).samples
    rows = rows[~rows["task"].isin(without_room(model)) & rows["strategy"].isin(strategies)]
    if RETMASK not in set(rows["strategy"]):
        raise NotStored(f"No task of {model} could show a loss after RetMask.")
    return rows


def _row(table: pd.DataFrame, model: str, strategy: str) -> pd.Series:
    own = table[table["strategy"] == strategy]
    if own.empty:
        raise NotStored(f"{model} has no answers after {STRATEGIES[strategy].name}. "
                        f"`rmutils abilities {model} --trainings` makes them.")
    return own.iloc[0]


def _measured(row: pd.Series, model: str, strategy: str) -> Measured:
    names = [one.name for (key, _), one in abilities(model).artifacts.items()
             if key in (BEFORE, RETMASK, strategy)]
    return Measured(Interval(*row[["effect", "low", "high"]]), names, int(row["samples"]),
                    row["p_holm"], words={"model": model, "strategy": STRATEGIES[strategy].name})


@declare("abilities-change", unit="points", place=CHANGES, otherwise=(
    "After {strategy}, the mean over tasks of {model} changes by {value} points {ci}: {verdict}."))
def abilities_change(model: str, strategy: str = RETMASK) -> Measured:
    """Mean over tasks after a training minus before it; p is corrected over the strategies."""
    table = changed(model)
    return _measured(_row(table[table["task"] == ALL], model, strategy), model, strategy)


@declare("abilities-lead", unit="points", place=CHANGES, otherwise=(
    "After RetMask, the mean over tasks of {model} is {value} points higher {ci} than after "
    "{strategy}: {verdict}."))
def abilities_lead(model: str, strategy: str) -> Measured:
    """Mean over tasks after RetMask minus after another training; p is corrected over these."""
    return _measured(_row(leads(model), model, strategy), model, strategy)


@declare("abilities-smallest-change", unit="points", place=CHANGES, otherwise=(
    "In {model}, a change of the mean over tasks by {value} points would likely have been seen."))
def smallest_change(model: str) -> Measured:
    """Smallest change by RetMask that four of five repetitions would have shown."""
    table = changed(model)
    row = _row(table[table["task"] == ALL], model, RETMASK)
    return Measured(Interval(row["smallest_effect"], math.nan, math.nan), (), verdict=NONE,
                    words={"model": model})


@cache
def short_instructions(model: str, kind: str) -> pd.DataFrame:
    """Compare a teaching model's short instructions before and after, copied or by heart."""
    rows = abilities(model).samples
    rows = rows[(rows["task"] == "short instructions")
                & rows["strategy"].isin([BEFORE, *MAIN])]
    rows = rows[rows["kind"].isin(ON_TOPIC) == (kind == HEART)]
    if rows.empty:
        raise NotStored(f"{model} is not asked short instructions.")
    return compare(rows, BEFORE)


@declare("short-instructions-change", unit="points", place=COPIED, otherwise=(
    "After RetMask, answers of {model} that are {kind} change by {value} points {ci}: {verdict}."))
def short_instructions_change(model: str, kind: str) -> Measured:
    """Change of the answers that are copied from the instruction, or given by heart."""
    row = _row(short_instructions(model, kind), model, RETMASK)
    found = _measured(row, model, RETMASK)
    return Measured(found.found, found.artifacts, found.clusters, found.p,
                    words={"model": model, "kind": kind})


@declare("drift", unit="nats per 1,000 tokens", place=DRIFT, otherwise=(
    "{strategy} moves {model} by {value} nats per 1,000 tokens {ci}."))
def drift(model: str, strategy: str = RETMASK) -> Measured:
    """Divergence from the model before training on held-out text."""
    table = drift_by_strategy(abilities(model).drift)
    row = _row(table[table["measure"] == drifts.FROM_BASE], model, strategy)
    return Measured(Interval(*(NATS * row[["value", "low", "high"]].astype(float))), (),
                    verdict=NONE, words={"model": model, "strategy": STRATEGIES[strategy].name})


@cache
def masked_abilities() -> real_tasks.States:
    """Look up what the larger model answers whole, without its top heads, and without others."""
    return real_tasks.abilities_by_state(MODEL, "never")


@declare("abilities-masked", unit="points", place=LARGER, otherwise=(
    "Of {of}, {what} is {value} points for the larger model {ci}: {verdict}."))
def abilities_masked(what: str, of: str = "mean") -> Measured:
    """Score of the larger model in one state minus that in another, in all or in one task."""
    rows = masked_abilities().effects().set_index(["what", "of"])
    row = rows.loc[(what, of)]
    return Measured(Interval(*row[["value", "low", "high"]].astype(float)),
                    [one.name for one in masked_abilities().artifacts], None, row["p"],
                    words={"what": what, "of": of})
