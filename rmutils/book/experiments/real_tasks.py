"""Tasks and abilities of larger models: whole, without top heads, and without others."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd

from rmutils.book.experiments.masked_needles import MATCHED as CONTROL
from rmutils.book.experiments.masked_needles import TOP, WHOLE, count_at, spared_by_controls
from rmutils.book.experiments.real_models import detection, real_models
from rmutils.core.errors import NotStored, UserError
from rmutils.core.results import Artifact, Compute
from rmutils.evaluation.abilities.ability_tasks import OWN, each_question_once
from rmutils.evaluation.abilities.evaluate_abilities import (
    General,
    GeneralConfig,
    evaluate_general_stored,
)
from rmutils.evaluation.helmet import EvaluateConfig, evaluate_stored
from rmutils.heads.detection import detect_stored
from rmutils.heads.masking import count_displaced, draw_layer_matched
from rmutils.heads.scores import Head
from rmutils.stats import POINTS, Bounds, Contrast, contrast, interval

MODELS = ("qwen2.5-coder-0.5b", "gemma3-270m")
STATES = (WHOLE, TOP, CONTROL)
"""A model is asked without: nothing, its top heads, the same number of others of their layers."""
LENGTH, QUESTIONS, PILOT = 2048, 40, 10
PILOT_SEED = 7  # seed of the pilot's texts and questions; those measured have the default seed
ROOM = 10, 90  # a data set is measured if the whole model scores between these in the pilot
SHARE, CONTROL_SEED = 0.12, 42
CHANGE: Bounds = (-100.0, 100.0)


def heads_without(model: str, state: str, compute: Compute = "never") -> tuple[Head, ...]:
    """Return the heads that are masked in a state."""
    if state == WHOLE:
        return ()
    if compute != "never":  # all kinds of score in one run, which the plan's other parts want
        detect_stored(model, detection().changed({"score": "attention"}))
    scores, _ = detect_stored(model, detection(), compute="never")
    tau, total = real_models().content["tau"], scores.mean.size
    top = scores.select(top_k=round(SHARE * total))
    spared = spared_by_controls(top, scores.ranking()[: count_at(scores, tau)], total)
    return tuple(sorted(top if state == TOP else draw_layer_matched(
        scores.shape, top, exclude=spared or (), seed=CONTROL_SEED)))


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
    """Return the data sets that the pilot leaves."""
    means, _ = pilot(model, compute)
    low, high = ROOM
    if not (chosen := tuple(means.index[means.between(low, high)])):
        raise UserError(f"{model} scores between {low} and {high} on no data set.")
    return chosen


def tasks(model: str, state: str = WHOLE, compute: Compute = "never", *,
          trained: str | None = None) -> tuple[pd.DataFrame, Artifact]:
    """Return the scores of a model in a state, or after a training, on the measured data sets."""
    config = EvaluateConfig(datasets=measured(model, compute), lengths=(LENGTH,), samples=QUESTIONS,
                            per_text=1, masked=heads_without(model, state, compute))
    table, artifact = evaluate_stored(trained or model, config, compute=compute)
    return by_question(table), artifact


def by_question(table: pd.DataFrame) -> pd.DataFrame:
    """Return `dataset`, `sample` and `score`, the mean over the metrics of a data set."""
    return table.groupby(["dataset", "sample"], sort=False, as_index=False)["score"].mean()


def abilities(model: str, state: str = WHOLE, compute: Compute = "never", *,
              trained: str | None = None) -> tuple[General, Artifact]:
    """Return the general abilities of a model in a state, or after a training."""
    config = GeneralConfig(masked=heads_without(model, state, compute))
    look = partial(evaluate_general_stored, trained or model, base=model if trained else None)
    try:
        return look(config, compute=compute)
    except NotStored:  # or made on a machine without a sandbox for programs
        tasks = tuple(name for name in OWN["book"] if name != "code")
        return look(config.changed({"tasks": tasks}), compute="never")


def difference(pairs: Sequence[tuple[pd.DataFrame, pd.DataFrame]], value: str, cluster: str,
               stratum: str | None = None, bounds: Bounds = CHANGE) -> Contrast:
    """Compare tables of the same questions, the first of each pair minus the second."""
    keys = [cluster, *([stratum] if stratum else [])]
    parts = []
    for number, (one, other) in enumerate(pairs):
        if not one[keys].reset_index(drop=True).equals(other[keys].reset_index(drop=True)):
            raise UserError("these are answers to other questions: they cannot be compared.")
        parts.append(one[keys].assign(
            seed=number, gap=one[value].to_numpy(float) - other[value].to_numpy(float)))
    table = pd.concat(parts, ignore_index=True)
    table = each_question_once(table, "gap", stratum) if stratum else table
    gaps, clusters = table["gap"].to_numpy(), table[cluster].to_numpy()
    strata = table[stratum].to_numpy() if stratum else None
    return contrast(gaps, clusters, strata, bounds=bounds)


@dataclass(frozen=True)
class States:
    """What a model answers in each state, and where that is stored."""

    answers: dict[str, pd.DataFrame]  # state -> `sample`, `score` and the column `stratum`
    stratum: str  # data set or task
    artifacts: list[Artifact]

    def effects(self) -> pd.DataFrame:
        """Return the planned comparisons."""
        rows = []
        for one, other in ((CONTROL, TOP), (TOP, WHOLE), (CONTROL, WHOLE)):
            for name in ("mean", *self.answers[WHOLE][self.stratum].unique()):
                first, second = (self._part(state, name) for state in (one, other))
                rows.append({"what": f"{one} minus {other}", "of": name, **difference(
                    [(first, second)], "score", "sample", self.stratum).columns})
        return pd.DataFrame(rows)

    def means(self) -> pd.DataFrame:
        """Return the mean score in each state with 95 % intervals over questions."""
        rows = []
        for name in ("mean", *self.answers[WHOLE][self.stratum].unique()):
            for state in STATES:
                part = each_question_once(self._part(state, name), task=self.stratum)
                found = interval(part["score"], strata=part[self.stratum], bounds=POINTS)
                rows.append({"of": name, "state": state, **found._asdict()})
        return pd.DataFrame(rows)

    def _part(self, state: str, name: str) -> pd.DataFrame:
        table = self.answers[state]
        return table if name == "mean" else table[table[self.stratum] == name]


def tasks_by_state(model: str, compute: Compute = "never") -> States:
    """Look the tasks of a model up in all states, or make them."""
    found = {state: tasks(model, state, compute) for state in STATES}
    return States({state: table for state, (table, _) in found.items()}, "dataset",
                  [artifact for _, artifact in found.values()])


def abilities_by_state(model: str, compute: Compute = "never") -> States:
    """Look the general abilities of a model up in all states, or make them."""
    found = {state: abilities(model, state, compute) for state in STATES}
    return States({state: result.samples for state, (result, _) in found.items()}, "task",
                  [artifact for _, artifact in found.values()])
