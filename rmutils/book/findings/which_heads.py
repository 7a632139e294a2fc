"""How much the heads that each score finds matter: masked, switched off in other ways, in pairs."""

from __future__ import annotations

from functools import cache

import pandas as pd

from rmutils.book.chapters.which_heads import experiment as masked
from rmutils.book.chapters.which_heads import masking_losses as losses
from rmutils.book.chapters.which_heads.pairs_from_other_heads import pairs_from_other_heads
from rmutils.book.experiments import needles_left
from rmutils.book.findings.registry import AGAINST, SHOWN, UNDECIDED, Measured, Verdict, declare
from rmutils.core.errors import NotStored
from rmutils.core.experiment import load_plan
from rmutils.core.results import Artifact
from rmutils.stats import Interval

SCORES, KINDS = "fig-larger-scores", "fig-larger-kinds"
COSTS, ABLATIONS = "fig-which-costs", "fig-which-ablations"
JUDGED: dict[int, Verdict] = {1: SHOWN, -1: AGAINST, 0: UNDECIDED}


@cache
def stored(part: str) -> needles_left.Stored:
    """Look a part of `data/plans/real_models.yml` up, for all its models."""
    return needles_left.stored(part)


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
    return Measured(
        Interval(*(100 * row[["difference", "low", "high"]].astype(float))),
        [one.name for one in stored(part).artifacts], p=row["p_holm" if "p_holm" in row else "p"],
        verdict=JUDGED[row["shown"]] if "shown" in row else None,
        words={"model": model, column: name})


@declare("needles-kept-beside-copy", unit="points", place=SCORES, otherwise=(
    "Without its top heads by {score} score, {model} finds {value} points more needles {ci} than "
    "without those by copy score: {verdict}."))
def kept_beside_copy(model: str, score: str) -> Measured:
    """Needles found without the top heads by a score, minus without those that copy; p is not
    corrected."""
    return _measured("which-heads", compared(), model, "score", score)


@declare("needles-lost-by-score", unit="points", place=SCORES, otherwise=(
    "Without its top heads by {score} score, {model} finds {value} points fewer needles {ci} than "
    "without others of the same layers: {verdict}."))
def lost_by_score(model: str, score: str) -> Measured:
    """Needles found without others of the same layers, minus without the top heads by a score."""
    return _measured("which-heads", by_score(), model, "score", score)


@declare("needles-lost-by-kind", unit="points", place=KINDS, otherwise=(
    "Without the heads that copy literal needles most, {model} finds {value} points fewer needles "
    "of {set} {ci} than without others of the same layers: {verdict}."))
def lost_by_kind(model: str, kind: str) -> Measured:
    """The same for another kind of needle, without the heads that copy literal ones."""
    return _measured("kinds", by_kind(), model, "set", kind)


@declare("literal-needles-lost", unit="points", place=COSTS, otherwise=(
    "Without its top {count} heads by {score} score, {model} loses {value} points more of the "
    "literal needles {ci} than without others of the same layers: {verdict}."))
def literal_needles_lost(model: str, count: int, score: str = masked.COPY) -> Measured:
    """The same on this page's twenty needles; p is corrected over the scores."""
    table, artifact = _costs(model)
    row = table[(table["outcome"] == masked.PRIMARY) & (table["kind"] == score)
                & (table["count"] == count)].iloc[0]
    return Measured(_points(row["difference"]), [artifact.name], p=row["p_holm"], words={
        "model": model, "count": count, "score": masked.SCORE[score]})


@declare("ablation-difference", unit="points", place=ABLATIONS, otherwise=(
    "In {model}, {what}: {value} points of the needles {ci} more than the control, {verdict}."))
def ablation_difference(model: str, what: str) -> Measured:
    """A comparison of `data/plans/which_heads_ablations.yml`; p is corrected over all five."""
    table, used = _ablations(model)
    row = table.set_index("what").loc[what]
    return Measured(_points(row["difference"]), [one.name for one in used],
                    p=row["p_holm"], words={"model": model, "what": what})


@cache
def _costs(model: str) -> tuple[pd.DataFrame, Artifact]:
    result, artifact = masked.which_heads_stored(
        model, masked.planned(load_plan("which_heads"))[model], compute="never")
    return losses.costs(result), artifact


@cache
def _ablations(model: str) -> tuple[pd.DataFrame, list[Artifact]]:
    plan = load_plan("which_heads_ablations")
    found = {how: masked.which_heads_stored(model, masked.planned(plan, how)[model],
                                            compute="never") for how in plan.content["ablations"]}
    return (losses.compare_ablations({how: result for how, (result, _) in found.items()}),
            [artifact for _, artifact in found.values()])


@declare("needles-after-other-pairs", unit="points", place="tab-other-pairs", otherwise=(
    "After training on pairs from the heads by {score} score, SmolLM2 finds {value} points more "
    "needles {ci} than after RetMask: {verdict}."))
def needles_after_other_pairs(score: str) -> Measured:
    """Needles found after training on pairs from the heads by a score, minus after RetMask."""
    pairs = pairs_from_other_heads()
    table = pairs.needles()
    rows = table[table["primary"].astype(bool)
                 & (table["this"].map(lambda arm: arm[0]) == score)]
    if rows.empty:
        raise NotStored("Make it with `rmutils run which_heads -p compute_pairs auto`.")
    row = rows.iloc[0]
    return Measured(_points(Interval(*row[["value", "low", "high"]].astype(float))),
                    [one.name for one in pairs.artifacts], p=row["p"], words={"score": score})


def _points(found: Interval) -> Interval:
    return Interval(*(100 * end for end in found))
