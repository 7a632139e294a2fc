"""How much the heads that each score finds matter: masked, switched off in other ways, in pairs."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from rmutils.book.chapters.which_heads import experiment
from rmutils.book.chapters.which_heads import experiment as masked
from rmutils.book.chapters.which_heads.pairs_from_other_heads import (
    OTHER_PAIRS,
    pairs_from_other_heads,
)
from rmutils.book.experiments import needles_left
from rmutils.book.experiments.needles_left import stored
from rmutils.book.findings import BY_SIGN, Measured, declare, scaled
from rmutils.core.errors import NotStored, require
from rmutils.core.experiment import load_plan
from rmutils.core.results import Artifact
from rmutils.heads.scores import DECIMALS
from rmutils.stats import ANY, DIFFERENCE, LEVEL, contrast, holm, interval


def costs(result: experiment.WhichHeads) -> pd.DataFrame:
    """Return what each masking loses, and how much of it is due to the heads."""
    rows = []
    for (outcome, kind, count), part in result.outcomes[
            result.outcomes["policy"] != experiment.WHOLE].groupby(["outcome", "kind", "count"],
                                                                   sort=False):
        whole, lost = _lost(result, outcome, part)
        bounds = ANY if outcome == experiment.PLAIN_TEXT else DIFFERENCE
        beyond = contrast(lost[experiment.TOP] - lost[experiment.MATCHED], bounds=bounds)
        rows.append((outcome, kind, count, whole.mean(),
                     interval(lost[experiment.TOP][:, 0], bounds=bounds),
                     interval(lost[experiment.MATCHED], seeds=True, bounds=bounds), beyond.interval,
                     beyond.p))
    table = pd.DataFrame(rows, columns=["outcome", "kind", "count", "whole", "lost", "control",
                                        "difference", "p"])
    return table.assign(p_holm=table.groupby(["outcome", "count"])["p"].transform(holm))


def _lost(result: experiment.WhichHeads, outcome: str,
          part: pd.DataFrame) -> tuple[pd.Series, dict[str, np.ndarray]]:
    """What the whole model has of an outcome, and what it loses: by policy, (samples, draws)."""
    whole = result.outcomes.query("policy == @experiment.WHOLE and outcome == @outcome").set_index(
        "sample")["value"]
    return whole, {policy: whole.to_numpy()[:, None] - group.pivot(
        index="sample", columns="draw", values="value").loc[whole.index].to_numpy()
        for policy, group in part.groupby("policy")}


def compare_ablations(by_how: Mapping[str, experiment.WhichHeads]) -> pd.DataFrame:
    """Return the five comparisons of `data/plans/which_heads_ablations.yml` on one model."""
    def beyond(how: str, kind: str) -> np.ndarray:
        part = by_how[how].outcomes.query(
            "policy != @experiment.WHOLE and outcome == @experiment.PRIMARY and kind == @kind")
        _, lost = _lost(by_how[how], experiment.PRIMARY, part)
        return np.asarray(lost[experiment.TOP] - lost[experiment.MATCHED])

    compared = [(f"heads by {kind}", beyond("zero", kind), DIFFERENCE)
                for kind in ("anchor", "query", "patching")]
    compared += [(f"{how} minus zero, heads by copy", beyond(how, experiment.COPY)
                  - beyond("zero", experiment.COPY),
                  ANY) for how in ("mean", "query")]  # differences of differences
    found = {what: contrast(values, bounds=bounds) for what, values, bounds in compared}
    table = pd.DataFrame([(what, one.interval, one.p) for what, one in found.items()],
                         columns=["what", "difference", "p"])
    return table.assign(p_holm=holm(table["p"]))


def agreement(result: experiment.WhichHeads, count: int, tau: float = 0.1) -> pd.DataFrame:
    """Compare each score with the copy score."""
    base, mean = result.ranking(experiment.COPY)[:count], result.map_of(experiment.COPY)
    reached = int((mean.round(DECIMALS) >= tau).sum())
    rows = []
    for kind in result.scores["kind"].unique():
        ranked, scores = result.ranking(kind), result.map_of(kind)
        layers = sorted(layer for layer, _ in ranked[:count])
        rows.append((kind, pd.Series(mean.ravel()).corr(pd.Series(scores.ravel()), "spearman"),
                     len({*ranked[:count]} & {*base}),
                     f"{layers[0]} to {layers[-1]}, median {np.median(layers):g}",
                     scores[ranked[reached - 1]] if reached else np.nan))
    return pd.DataFrame(rows, columns=["kind", "correlation", "common", "layers", "like_tau"])


def clear(row: Any, level: float = 1 - LEVEL) -> bool:
    """Apply the plan's rule to a row of `costs`: whether it decides."""
    return bool(row.p_holm < level and (row.difference.low > 0 or row.difference.high < 0))


def off_floor(costs_of: pd.DataFrame, bounds: tuple[float, float]) -> list[str]:
    """Return the outcomes that have room for a loss; plain text always has."""
    whole = costs_of.groupby("outcome", sort=False)["whole"].first()
    return [name for name, value in whole.items() if name == experiment.PLAIN_TEXT
            or value >= bounds[0]]


SCORES, KINDS = "fig-larger-scores", "fig-larger-kinds"
COSTS, ABLATIONS = "fig-which-costs", "fig-which-ablations"


@cache
def by_score() -> pd.DataFrame:
    """Compare the heads of each score with others of their layers."""
    return needles_left.by_score(stored("which-heads").answers, load_plan("real_models"))


@cache
def by_kind() -> pd.DataFrame:
    """Compare the heads that copy literal needles with others, for each kind of needle."""
    return needles_left.by_set(stored("kinds").answers,
                               len(load_plan("real_models").content["models"]))


@cache
def compared() -> pd.DataFrame:
    """Compare the heads of each score with those that copy."""
    return needles_left.compare_scores(stored("which-heads").answers)


def _measured(part: str, table: pd.DataFrame, model: str, column: str, name: str) -> Measured:
    if model not in stored(part).results:
        raise NotStored(" ".join(stored(part).missing))
    row = table[(table["model"] == model) & (table[column] == name)].iloc[0]
    return Measured.row(row, stored(part).artifacts, 100, p="p_holm" if "p_holm" in row else "p",
                        verdict=BY_SIGN[row["shown"]] if "shown" in row else None, model=model,
                        **{column: name})


@declare("needles-kept-beside-copy", unit="points", place=SCORES, otherwise=(
    "Without its top heads by {score} score, {model} finds {value} points {more|fewer} needles "
    "{ci} than without those by copy score: {verdict}."))
def kept_beside_copy(model: str, score: str) -> Measured:
    """Needles found without the top heads by a score, minus without those that copy."""
    return _measured("which-heads", compared(), model, "score", score)


@declare("needles-lost-by-score", unit="points", place=SCORES, otherwise=(
    "Without its top heads by {score} score, {model} finds {value} points {fewer|more} needles "
    "{ci} than without others of the same layers: {verdict}."))
def lost_by_score(model: str, score: str) -> Measured:
    """Needles found without others of the same layers, minus without the top heads by a score."""
    return _measured("which-heads", by_score(), model, "score", score)


@declare("needles-lost-by-kind", unit="points", place=KINDS, otherwise=(
    "Without the heads that copy literal needles most, {model} finds {value} points {fewer|more} "
    "needles of {set} {ci} than without others of the same layers: {verdict}."))
def lost_by_kind(model: str, kind: str) -> Measured:
    """The same for another kind of needle, without the heads that copy literal ones."""
    return _measured("kinds", by_kind(), model, "set", kind)


@declare("literal-needles-lost", unit="points", place=COSTS, otherwise=(
    "Without its top {count} heads by {score} score, {model} loses {value} points {more|less} of "
    "the literal needles {ci} than without others of the same layers: {verdict}."))
def literal_needles_lost(model: str, count: int, score: str = masked.COPY) -> Measured:
    """The same on this page's twenty needles; p is corrected over the scores."""
    table, artifact = _costs(model)
    row = table[(table["outcome"] == masked.PRIMARY) & (table["kind"] == score)
                & (table["count"] == count)].iloc[0]
    return Measured(scaled(row["difference"]), [artifact], p=row["p_holm"],
                    words={"score": masked.SCORE[score]})


@declare("ablation-difference", unit="points", place=ABLATIONS, otherwise=(
    "In {model}, {what}: {value} points of the needles {more|less} than in the control {ci}, "
    "{verdict}."))
def ablation_difference(model: str, what: str) -> Measured:
    """A comparison of `data/plans/which_heads_ablations.yml`; p is corrected over all five."""
    table, used = _ablations(model)
    row = table.set_index("what").loc[what]
    return Measured(scaled(row["difference"]), used, p=row["p_holm"])


@cache
def _costs(model: str) -> tuple[pd.DataFrame, Artifact]:
    result, artifact = masked.which_heads_stored(
        model, masked.planned(load_plan("which_heads"))[model], compute="never")
    return costs(result), artifact


@cache
def _ablations(model: str) -> tuple[pd.DataFrame, list[Artifact]]:
    plan = load_plan("which_heads_ablations")
    found = {how: masked.which_heads_stored(model, masked.planned(plan, how)[model],
                                            compute="never") for how in plan.content["ablations"]}
    return (compare_ablations({how: result for how, (result, _) in found.items()}),
            [artifact for _, artifact in found.values()])


@declare("needles-after-other-pairs", unit="points", place="tab-other-pairs", otherwise=(
    "After training on pairs from the heads by {score} score, SmolLM2 finds {value} points "
    "{more|fewer} needles {ci} than after RetMask: {verdict}."))
def needles_after_other_pairs(score: str) -> Measured:
    """Needles found after training on pairs from the heads by a score, minus after RetMask."""
    pairs = pairs_from_other_heads()
    table = pairs.needles()
    rows = table[table["primary"].astype(bool) & (table["this"].map(lambda arm: arm[0]) == score)]
    if rows.empty:
        require([OTHER_PAIRS.command])
    return Measured.row(rows.iloc[0], pairs.artifacts, 100, p="p")
