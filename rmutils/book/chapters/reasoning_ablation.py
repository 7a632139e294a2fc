"""What training on pairs without their thoughts does."""

from functools import cache

import pandas as pd

from rmutils.book.chapters.main_tables import experiment
from rmutils.book.chapters.main_tables.task_effects import THINKING, blind_cells
from rmutils.book.experiments.planned_runs import RETMASK
from rmutils.book.findings import Measured, declare
from rmutils.core.errors import NotStored
from rmutils.preference.strategies import STRATEGIES

MODEL, KINDS = "tiny-qwen3", (RETMASK, "rc-removed", "rc-un-generated")


@cache
def evaluations() -> experiment.Evaluated:
    """Look up what the model scores, with thoughts, after training on each kind of pairs."""
    return experiment.evaluated(MODEL, THINKING, KINDS)


def _measured(table: pd.DataFrame, strategy: str) -> Measured:
    rows = table[table["strategy"] == strategy] if len(table) else table
    if rows.empty:
        raise NotStored(f"{MODEL} is not evaluated after {STRATEGIES[strategy].name}. "
                        + " ".join(f"`{command}`" for command in evaluations().missing[:1]))
    return Measured.row(rows.iloc[0], evaluations().artifacts, p="p_holm",
                        clusters=int(rows["clusters"].iloc[0]), strategy=STRATEGIES[strategy].name)


@declare("whole-pairs-lead", unit="points", place="fig-kinds", otherwise=(
    "Training on whole pairs scores {value} points {more|less} {ci} than on pairs of {strategy}: "
    "{verdict}."))
def whole_pairs_lead(strategy: str) -> Measured:
    """Mean score after training on whole pairs, minus on a shortened kind."""
    return _measured(experiment.contrasts(evaluations()), strategy)


@declare("reasoning-gain", unit="points", place="fig-reasoning", otherwise=(
    "Training on pairs of {strategy} changes the score by {value} points {ci}: {verdict}."))
def reasoning_gain(strategy: str = RETMASK) -> Measured:
    """Mean score after training on a kind of pairs, minus before training."""
    return _measured(experiment.gains(evaluations()), strategy)


def by_category() -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Compare whole pairs with each shortened kind in each category."""
    table = experiment.contrasts(evaluations(), ["category"])
    blind = [category for category, why in pd.Series(
        blind_cells(MODEL, THINKING)).groupby(level=0, sort=False) if why.all()]
    return table, experiment.able_to_differ(table, blind) if len(table) else table, blind
