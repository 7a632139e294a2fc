"""Tasks and general abilities of larger models: whole, without their top heads, and without others.

Part 5 of `data/plans/real_models.yml`. A pilot on other questions chooses the data sets that have
room in both directions. `rmutils run 03_main_tables -p compute_real auto` makes what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from rmutils.core.errors import UserError
from rmutils.core.results import Artifact, Compute
from rmutils.evaluation.abilities.evaluate_abilities import (
    General,
    GeneralConfig,
    evaluate_general_stored,
)
from rmutils.evaluation.helmet import EvaluateConfig, evaluate_stored
from rmutils.heads import DetectConfig
from rmutils.heads.detection import detect_stored
from rmutils.heads.masking import count_displaced, draw_layer_matched
from rmutils.heads.scores import Head
from rmutils.stats import Bounds, interval, sign_flip_test

MODELS = ("qwen2.5-coder-0.5b", "gemma3-270m")
WHOLE, TOP, CONTROL = "whole", "top heads", "same layers"
STATES = (WHOLE, TOP, CONTROL)
"""What a model answers without: nothing, its top heads, as many others of their layers."""
LENGTH, QUESTIONS, PILOT = 2048, 40, 10
PILOT_SEED = 7
"""Of the pilot's texts and questions; those measured have the default seed."""
ROOM = 10, 90
"""A data set is measured if the whole model scores between these in the pilot."""
SHARE, CONTROL_SEED = 0.12, 42
CHANGE: Bounds = (-100.0, 100.0)


def detection() -> DetectConfig:
    """Return the grid by which heads are chosen (part 1 of the plan)."""
    return DetectConfig(lengths=(512, 1024, 2048), depths=(0.0, 0.5, 1.0), needles=16,
                        needle_set="facts-literal", max_new_tokens=32)


def heads_without(model: str, state: str, compute: Compute = "never") -> tuple[Head, ...]:
    """Return the heads that are masked in a state.

    Raises
    ------
    NotStored
        The detection is not stored and `compute="never"`.
    """
    if state == WHOLE:
        return ()
    if compute != "never":  # all kinds of score in one run, which the plan's other parts want
        detect_stored(model, detection().changed({"score": "attention"}))
    scores, _ = detect_stored(model, detection(), compute="never")
    top = scores.select(top_k=round(SHARE * scores.mean.size))
    return tuple(sorted(top if state == TOP else draw_layer_matched(
        scores.shape, top, exclude=top, seed=CONTROL_SEED)))


def displaced(model: str) -> int:
    """Count the heads of the control that had to come from another layer."""
    return count_displaced(heads_without(model, CONTROL), heads_without(model, TOP))


def pilot(model: str, compute: Compute = "never") -> tuple[pd.Series, Artifact]:
    """Return the whole model's mean score on each data set, on other questions."""
    config = EvaluateConfig(datasets=("plain",), lengths=(LENGTH,), samples=PILOT,
                            seed=PILOT_SEED, per_text=1)
    table, artifact = evaluate_stored(model, config, compute=compute)
    return by_question(table).groupby("dataset", sort=False)["score"].mean(), artifact


def measured(model: str, compute: Compute = "never") -> tuple[str, ...]:
    """Return the data sets that the pilot leaves.

    Raises
    ------
    UserError
        None.
    """
    means, _ = pilot(model, compute)
    low, high = ROOM
    if not (chosen := tuple(means.index[means.between(low, high)])):
        raise UserError(f"{model} scores between {low} and {high} on no data set.")
    return chosen


def tasks(
    model: str, state: str = WHOLE, compute: Compute = "never", *, trained: str | None = None,
) -> tuple[pd.DataFrame, Artifact]:
    """Return the scores of a model in a state, or after a training, on the measured data sets.

    Parameters
    ----------
    trained : str, optional
        A stored training of the model.

    Returns
    -------
    DataFrame, Artifact
        As `by_question`, and where it is stored.
    """
    config = EvaluateConfig(
        datasets=measured(model, compute), lengths=(LENGTH,), samples=QUESTIONS, per_text=1,
        masked=heads_without(model, state, compute))
    table, artifact = evaluate_stored(trained or model, config, compute=compute)
    return by_question(table), artifact


def by_question(table: pd.DataFrame) -> pd.DataFrame:
    """Return `dataset`, `sample` and `score`, the mean over the metrics of a data set."""
    return table.groupby(["dataset", "sample"], sort=False, as_index=False)["score"].mean()


def abilities(
    model: str, state: str = WHOLE, compute: Compute = "never", *, trained: str | None = None,
) -> tuple[General, Artifact]:
    """Return the general abilities of a model in a state, or after a training.

    Raises
    ------
    UserError
        The model has no chat template, as gemma3-270m.
    """
    config = GeneralConfig(masked=heads_without(model, state, compute))
    return evaluate_general_stored(trained or model, config, base=model if trained else None,
                                   compute=compute)


class Difference(NamedTuple):
    """A mean difference with its 95 % interval and the p of a sign-flip test."""

    value: float
    low: float
    high: float
    p: float


def difference(
    pairs: Sequence[tuple[pd.DataFrame, pd.DataFrame]], value: str, cluster: str,
    stratum: str | None = None, bounds: Bounds = CHANGE,
) -> Difference:
    """Compare tables of the same questions, the first of each pair minus the second.

    Parameters
    ----------
    pairs : sequence of (DataFrame, DataFrame)
        Several, for several trainings: whose mean is taken. The interval is over clusters alone.
    value, cluster, stratum : str
        Columns. Means of strata are averaged.
    """
    keys = [cluster, *([stratum] if stratum else [])]
    parts = []
    for one, other in pairs:
        if not one[keys].reset_index(drop=True).equals(other[keys].reset_index(drop=True)):
            raise UserError("these are answers to other questions: they cannot be compared.")
        parts.append(one[keys].assign(
            gap=one[value].to_numpy(float) - other[value].to_numpy(float)))
    table = pd.concat(parts, ignore_index=True)
    gaps, clusters = table["gap"].to_numpy(), table[cluster].to_numpy()
    strata = table[stratum].to_numpy() if stratum else None
    found = interval(gaps, clusters, strata, bounds=bounds)
    return Difference(*map(float, found), sign_flip_test(gaps[:, None], clusters, strata))


def task_effects(model: str) -> pd.DataFrame:
    """Return the planned comparisons of the stored answers.

    Returns
    -------
    DataFrame
        `what` ("same layers minus top heads", the primary one; "top heads minus whole", "same
        layers minus whole"), `dataset` ("mean", or one of them), and the fields of `Difference`.
    """
    found = {state: tasks(model, state)[0] for state in STATES}
    rows = []
    for one, other in ((CONTROL, TOP), (TOP, WHOLE), (CONTROL, WHOLE)):
        for name in ("mean", *found[WHOLE]["dataset"].unique()):
            pair = [found[state] if name == "mean" else
                    found[state].query("dataset == @name") for state in (one, other)]
            rows.append({"what": f"{one} minus {other}", "dataset": name, **difference(
                [tuple(pair)], "score", "sample", "dataset")._asdict()})
    return pd.DataFrame(rows)


def state_means(model: str) -> pd.DataFrame:
    """Return the mean score of each data set in each state, with 95 % intervals over questions:
    `state`, `dataset`, `value`, `low`, `high`; "mean" is that of the data sets."""
    rows = []
    for state in STATES:
        table, _ = tasks(model, state)
        for name, part in (("mean", table), *table.groupby("dataset", sort=False)):
            found = interval(part["score"], strata=part["dataset"], bounds=(0, 100))
            rows.append({"state": state, "dataset": name, **found._asdict()})
    return pd.DataFrame(rows)


def artifacts(model: str) -> list[Artifact]:
    """Return the stored results of the tasks."""
    return [pilot(model)[1], *(tasks(model, state)[1] for state in STATES)]


def make(model: str) -> None:
    """Make what is missing."""
    for state in STATES:
        tasks(model, state, "auto")
    if np.isin(model, MODELS[:1]):
        for state in STATES:
            abilities(model, state, "auto")
