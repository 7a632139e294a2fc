"""What training on pairs without their thoughts does, and training a model that thinks first."""

from functools import cache

import pandas as pd

from rmutils.book.chapters.main_tables import experiment
from rmutils.book.chapters.main_tables.findings import OTHER_HEADS
from rmutils.book.chapters.main_tables.task_effects import (
    THINKING,
    blind_cells,
    gain,
    gain_at,
    gain_over_thinking_twin,
    lead,
)
from rmutils.book.experiments.planned_runs import RETMASK, trainings
from rmutils.book.experiments.thinking_twin import (
    INSTRUCT,
    TWIN,
    twin_artifact,
    twin_evaluation,
    twin_heads,
)
from rmutils.book.findings import Measured, declare
from rmutils.book.verdicts import Effect
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


@declare("twin-gain", unit="points", place="instruct-and-think", scale=1, otherwise=(
    "RetMask changes the score of the twin that thinks by {value} points {ci}: {verdict}."))
def twin_gain() -> Effect:
    """Score of the thinking twin after RetMask minus that before training."""
    return gain(TWIN)


@declare("twin-lead", unit="points", place="instruct-and-think", scale=1, otherwise=(
    "On the twin that thinks RetMask scores {value} points {more|less} {ci} than the control: "
    "{verdict}."))
def twin_lead() -> Effect:
    """Score of the thinking twin after RetMask minus that after the control."""
    return lead(TWIN, OTHER_HEADS)


def twins() -> pd.DataFrame:
    """Return the comparisons of the plan `thinking_twin`, a row for each."""
    lengths = twin_evaluation().lengths
    effects = {f"{INSTRUCT}: gain by RetMask": gain(INSTRUCT),
               f"{TWIN}: gain by RetMask": gain(TWIN),
               **{f"{TWIN}: gain at {length:,} tokens": gain_at(TWIN, length)
                  for length in lengths},
               f"{TWIN}: RetMask minus the control": lead(TWIN, OTHER_HEADS),
               "gain of the first minus that of its twin, same questions and seeds":
               gain_over_thinking_twin(INSTRUCT)}
    return pd.DataFrame([(name, one.value, one.low, one.high, one.note or one.blind)
                         for name, one in effects.items()],
                        columns=["what", "value", "low", "high", "over"])


@declare("twin-heads-shared", unit="%", place="instruct-and-think", scale=1, otherwise=(
    "{value} % of the retrieval heads of tiny-olmo3 retrieve in its thinking twin, too."))
def twin_heads_shared() -> Measured:
    """Share of the model's retrieval heads that are retrieval heads of its twin."""
    run, *_ = trainings(INSTRUCT, RETMASK)
    heads = {(layer, head) for layer, head in run.heads}
    return Measured.count(100 * len(heads & twin_heads()) / len(heads),
                          [run.artifact, twin_artifact()])
