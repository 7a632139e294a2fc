"""What the four real models lose with their heads, by the rules of `data/plans/real_models.yml`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from rmutils.book.experiments import real_models
from rmutils.book.experiments.masked_needles import COPY, MATCHED, NEWEST, TOP, WHOLE, MaskedNeedles
from rmutils.core.errors import NotStored
from rmutils.core.experiment import Plan
from rmutils.core.results import Artifact
from rmutils.stats import DIFFERENCE, LEVEL, SHARE, contrast, crossed_interval, holm, interval

FLOOR = 1 / 3  # share of the needles that a model has to find unmasked; below, it is not read
PRIMARY_SHARE, KINDS_SHARE = 0.12, 0.05
PLACE = ["model", "set", "length", "position"]


def answers_of(results: Mapping[str, MaskedNeedles]) -> pd.DataFrame:
    """Return the answers of several models, by name, below each other."""
    return pd.concat([result.answers.assign(model=model) for model, result in results.items()],
                     ignore_index=True)


@dataclass(frozen=True)
class Stored:
    """A part of the plan, as far as it is stored."""

    results: dict[str, Any]  # model -> `HeadScores` or `MaskedNeedles`, in order of size
    artifacts: list[Artifact]
    missing: list[str]  # what is said of models whose result is not stored

    @property
    def answers(self) -> pd.DataFrame:
        """The answers of all models below each other, with the column `model`."""
        return answers_of(self.results)


PARTS: Mapping[str, Callable[[str], tuple[Any, Artifact]]] = {
    "detection": lambda model: real_models.detections_stored(
        model, [real_models.detection()], compute="never")[0],
    "masking": lambda model: real_models.masking_stored(model, compute="never"),
    "kinds": lambda model: real_models.kinds_stored(model, "never", ["english"])["english"],
    "which-heads": lambda model: real_models.which_heads_stored(model, compute="never")}


@cache
def stored(part: str) -> Stored:
    """Look a part of the plan up, a key of `PARTS`, for each of its models; read once."""
    found, missing = {}, []
    for model in real_models.real_models().content["models"]:
        try:
            found[model] = PARTS[part](model)
        except NotStored as error:
            missing.append(str(error))
    return Stored({model: result for model, (result, _) in found.items()},
                  [artifact for _, artifact in found.values()], missing)


def shares_found(answers: pd.DataFrame) -> pd.DataFrame:
    """Return the share of needles found under each policy and number of masked heads."""
    rows = []
    for key, part in answers.groupby([*PLACE, "score", "policy", "count"], sort=False):
        table = _by_needle(part)
        rows.append((*key, *interval(table, seeds=True, bounds=SHARE, cases=len(table)),
                     *table.shape))
    return pd.DataFrame(rows, columns=[*PLACE, "score", "policy", "count", "value", "low", "high",
                                       "needles", "draws"])


def _by_needle(part: pd.DataFrame) -> np.ndarray:
    """Whether each needle is found, (needles, draws)."""
    return part.pivot(index="needle", columns="draw", values="success").sort_index().to_numpy(float)


def compare_controls(answers: pd.DataFrame, control: str = MATCHED) -> pd.DataFrame:
    """Compare top heads with the same number of others, needle by needle."""
    rows = []
    keys = [*PLACE, "score", "count"]
    tops = dict(iter(answers[answers["policy"] == TOP].groupby(keys)))
    wholes = dict(iter(answers[answers["policy"] == WHOLE].groupby(PLACE)))
    for key, part in answers[answers["policy"] == control].groupby(keys, sort=False):
        whole, top = _by_needle(wholes[key[:len(PLACE)]]), _by_needle(tops[key])
        others = _by_needle(part)
        lost = contrast(others - top, bounds=DIFFERENCE)
        crossed = crossed_interval(others - top, bounds=DIFFERENCE)
        rows.append((*key, whole.mean(), top.mean(), others.mean(), *lost.columns.values(),
                     lost.seeds, whole.mean() >= FLOOR, crossed.low, crossed.high))
    return pd.DataFrame(rows, columns=[*keys, "whole", "top", "control", "difference", "low",
                                       "high", "p", "draws", "readable", "crossed_low",
                                       "crossed_high"])


def decided(table: pd.DataFrame, compared: int) -> pd.DataFrame:
    """Add `p_holm`, over so many comparisons, and `shown`: 1 shown, -1 against, 0 undecided."""
    p = table["p"].where(table["readable"], 1.0)
    corrected = holm(p, compared)
    clear = table["readable"] & (corrected < 1 - LEVEL)
    sign = (clear & (table["low"] > 0)).astype(int) - (clear & (table["high"] < 0)).astype(int)
    return table.assign(p_holm=corrected, shown=sign)


def primary(answers: pd.DataFrame, plan: Plan, heads: Mapping[str, int]) -> pd.DataFrame:
    """Apply the plan's rule for masking: at 12 % of the heads, newest position, 1,024 tokens."""
    table = compare_controls(by_copy(answers, plan))
    wanted = table["model"].map(lambda model: round(PRIMARY_SHARE * heads[model]))
    return decided(table[table["count"] == wanted].reset_index(drop=True),
                   len(plan.content["models"]))


def by_copy(answers: pd.DataFrame, plan: Plan | None = None) -> pd.DataFrame:
    """Answers of the whole model, and without heads by copy score, at the newest position."""
    rows = answers[(answers["position"] == NEWEST) & answers["score"].isin(["", COPY])]
    return rows if plan is None else rows[
        rows["length"] == plan.content["masking"]["length"]["default"]]


def by_score(answers: pd.DataFrame, plan: Plan) -> pd.DataFrame:
    """Apply the plan's rule for the scores: each against its control, Holm over a model."""
    table = compare_controls(answers)
    many = len(plan.content["detection"]["scores"])
    return pd.concat([decided(part.reset_index(drop=True), many)
                      for _, part in table.groupby("model", sort=False)], ignore_index=True)


def by_set(answers: pd.DataFrame, models: int) -> pd.DataFrame:
    """Apply the plan's rule for the kinds of needle, corrected over the models compared."""
    table = compare_controls(answers)
    return pd.concat([decided(part.reset_index(drop=True), models)
                      for _, part in table.groupby("set", sort=False)], ignore_index=True)


def compare_scores(answers: pd.DataFrame) -> pd.DataFrame:
    """Compare the top heads by copy score with those by each other score, on the same needles."""
    rows = []
    tops = answers[answers["policy"] == TOP]
    for (model, length), part in tops.groupby(["model", "length"], sort=False):
        found = {score: _by_needle(own) for score, own in part.groupby("score", sort=False)}
        for score, values in found.items():
            if score != COPY:
                more = contrast(values - found[COPY], bounds=DIFFERENCE)
                rows.append((model, length, score, *more.columns.values()))
    return pd.DataFrame(rows, columns=["model", "length", "score", "difference", "low", "high",
                                       "p"])


def halving(answers: pd.DataFrame, heads: Mapping[str, int]) -> pd.DataFrame:
    """Return how many top heads halve the share of needles that the whole model finds."""
    rows = []
    for (model, length), own in by_copy(answers).groupby(["model", "length"], sort=False):
        whole = own.loc[own["policy"] == WHOLE, "success"].mean()
        means = own[own["policy"] == TOP].groupby("count")["success"].mean()
        enough = means[means <= whole / 2]
        count = enough.index.min() if len(enough) else np.nan
        rows.append((model, length, whole, count,
                     max([0, *means.index[means.index < count]]) if len(enough) else np.nan,
                     count / heads[model]))
    return pd.DataFrame(rows, columns=["model", "length", "whole", "count", "before", "share"])


def displaced(results: Mapping[str, MaskedNeedles]) -> pd.DataFrame:
    """Return how many heads of the same-layer controls come from a neighbouring layer."""
    parts = [result.maskings[result.maskings["policy"] == MATCHED].groupby(
        ["score", "count"], sort=False)["displaced"].mean().reset_index().assign(model=model)
        for model, result in results.items()]
    return pd.concat(parts, ignore_index=True)[["model", "score", "count", "displaced"]]


def common_heads(rankings: Mapping[str, Sequence], count: int, base: str) -> dict[str, int]:
    """Return how many of the top heads of each set are among the top heads of another."""
    top = {*rankings[base][:count]}
    return {name: len(top & {*ranking[:count]}) for name, ranking in rankings.items()}


@cache
def common_by_set(model: str) -> dict[str, int]:
    """Return how many of the top 5 % of the heads by each set are top by `facts-literal`."""
    grids = real_models.kind_detections()
    del grids[real_models.JAPANESE]
    found = real_models.detections_stored(model, grids.values(), compute="never")
    rankings = {name: scores.ranking() for name, (scores, _) in zip(grids, found, strict=True)}
    return common_heads(rankings, round(KINDS_SHARE * found[0][0].mean.size), real_models.LITERAL)
