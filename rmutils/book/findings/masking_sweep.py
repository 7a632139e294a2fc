"""What the chapter says masking costs: in four real models, in its sweeps, and beyond a control."""

from __future__ import annotations

import math
from functools import cache

import pandas as pd

from rmutils.book.chapters.masking_sweep.experiment import Sweep, count_at
from rmutils.book.chapters.masking_sweep.sweet_spot import SHARES, UNMASKED, mean_under, worse_from
from rmutils.book.claims.effects import masking_effects
from rmutils.book.experiments import needles_left
from rmutils.book.experiments.sweep_questions import HAYSTACK
from rmutils.book.findings.registry import NONE, SHOWN, UNDECIDED, Measured, Verdict, declare
from rmutils.core.errors import NotStored
from rmutils.core.experiment import load_plan
from rmutils.heads.scores import HeadScores
from rmutils.models.known_models import tau_of
from rmutils.stats import Interval

REAL, LAYERS = "fig-real-needles", "fig-heads-or-layers"
LIVE, LARGE, SPEECH = "fig-sweep-live", "fig-sweep-large", "fig-speech-live"
EVERY = "every"


@cache
def real_masking() -> needles_left.Stored:
    """Look up what the four real models find without some of their heads."""
    return needles_left.stored("masking")


def _missing(model: str) -> NotStored:
    told = [one for one in real_masking().missing if model in one] or real_masking().missing
    return NotStored(" ".join(told) or f"No masking of {model} is planned.")


def _names() -> list[str]:
    return [artifact.name for artifact in real_masking().artifacts]


def _row(table: pd.DataFrame, model: str, count: int | None = None) -> pd.Series:
    own = table[(table["model"] == model) & (True if count is None else table["count"] == count)]
    if own.empty:
        raise _missing(model)
    return own.iloc[0]


def _points(row: pd.Series) -> Interval:
    return Interval(*(100 * row[["difference", "low", "high"]].astype(float)))


@cache
def twelve_percent() -> pd.DataFrame:
    """Apply the plan's rule: without the 12 % of heads that copy most, beside its control."""
    heads = needles_left.stored("detection").results
    return needles_left.primary(real_masking().answers, load_plan("real_models"),
                                {name: one.mean.size for name, one in heads.items()})


@declare("needles-lost-12-percent", unit="points", place=REAL, otherwise=(
    "Without the 12 % of heads that copy most, {model} finds {value} points fewer needles {ci} "
    "than without other heads of the same layers: {verdict} by the rule of the plan."))
def needles_lost_12_percent(model: str) -> Measured:
    """Needles that a real model finds without random heads of the same layers, minus without the
    heads that copy most; the plan's primary comparison."""
    row = _row(twelve_percent(), model)
    verdict: dict[int, Verdict] = {1: SHOWN, -1: "opposite shown"}
    return Measured(_points(row), _names(), _needles(model), row["p_holm"],
                    verdict.get(int(row["shown"]), UNDECIDED), {"model": model})


@declare("needles-lost-top", unit="points", place=REAL, otherwise=(
    "Without its {count} highest heads, {model} finds {value} points fewer needles {ci} than "
    "without {count} others of the same layers: {verdict}."))
def needles_lost_top(model: str, count: int) -> Measured:
    """The same at another number of heads; p is not corrected."""
    row = _row(needles_left.compare_controls(_by_copy()), model, count)
    return Measured(_points(row), _names(), _needles(model), row["p"],
                    words={"model": model, "count": count})


@declare("needles-lost-everywhere", unit="points", place=REAL, otherwise=(
    "Masked at every position, the 12 % of heads that copy most cost {model} {value} points more "
    "needles {ci} than other heads of the same layers: {verdict}."))
def needles_lost_everywhere(model: str) -> Measured:
    """The same with heads masked at every position of the prompt; p is not corrected."""
    plan = load_plan("real_models")
    answers = real_masking().answers
    rows = needles_left.compare_controls(answers[answers["position"] == EVERY])
    rows = rows[rows["length"] == plan.content["masking"]["length"]["default"]]
    row = _row(rows, model, int(_row(twelve_percent(), model)["count"]))
    return Measured(_points(row), _names(), _needles(model), row["p"], words={"model": model})


@declare("needles-found", unit="percent", place=REAL,
         otherwise="{model} finds {value} % of the needles.")
def needles_found(model: str, policy: str = "whole", count: int = 0) -> Measured:
    """Share of needles that a real model finds."""
    rows = needles_left.shares_found(_by_copy())
    row = _row(rows[rows["policy"] == policy], model, count)
    return Measured(Interval(*(100 * row[["value", "low", "high"]].astype(float))), _names(),
                    _needles(model), verdict=NONE, words={"model": model})


def _by_copy() -> pd.DataFrame:
    if not real_masking().results:
        raise _missing("")
    return needles_left.by_copy(real_masking().answers, load_plan("real_models"))


def _needles(model: str) -> int:
    answers = real_masking().answers
    return int(answers.loc[answers["model"] == model, "needle"].nunique())


@declare("needles-lost-beyond-same-layers", unit="points", place=LAYERS, otherwise=(
    "Without its retrieval heads {model} misses {value} points more needles {ci} than without the "
    "same number of other heads of the same layers: {verdict}."))
def needles_lost_beyond_same_layers(model: str) -> Measured:
    """Needles lost beyond layer-matched heads in the stored sweep, as the claims count them."""
    return Measured.of(masking_effects.needles_lost_beyond_same_layers(model), 100, model=model)


@declare("answers-lost", unit="points", place=LARGE, otherwise=(
    "Without its retrieval heads {model} loses {value} points of its answers {ci} of the kind "
    "`{measure}`: {verdict}."))
def answers_lost(model: str, measure: str) -> Measured:
    """Right answers of a kind that the stored sweep loses at the model's τ, as the claims count."""
    return Measured.of(masking_effects.answers_lost_at_tau(model, measure), 100, model=model,
                       measure=measure)


@declare("repetition-added", unit="points", place=LARGE, otherwise=(
    "Without its retrieval heads {model} repeats {value} points more of what it says {ci}: "
    "{verdict}."))
def repetition_added(model: str) -> Measured:
    """Rise of the repetition rate in the stored sweep around the model's τ, as the claims count."""
    return Measured.of(masking_effects.repetition_added_at_tau(model), 100, model=model)


def _lost(live: Sweep, scores: HeadScores, measure: str, *masks: tuple[str, int],
          artifact: str, words: dict[str, object]) -> Measured:
    rows = live.answers[live.answers["task"].isin(SHARES[measure])]
    found = mean_under(rows, "correct", *masks)
    clusters = len(rows[["task", "cluster"]].drop_duplicates())
    return Measured(Interval(*(100 * end for end in found)), [artifact], clusters, words=words)


@declare("live-answers-lost", unit="points", place=LIVE, otherwise=(
    "With its {count} highest heads masked, {model} loses {value} points of its answers {ci} to "
    "the {measure}: {verdict}."))
def live_answers_lost(live: Sweep, scores: HeadScores, measure: str, artifact: str) -> Measured:
    """Right answers that a sweep loses when all heads that reach the model's τ are masked."""
    count = count_at(scores, tau_of(scores.model))
    return _lost(live, scores, measure, UNMASKED, ("retrieval", count), artifact=artifact,
                 words={"model": scores.model, "count": count, "measure": measure})


@declare("live-needles-lost-beyond-others", unit="points", place=LIVE, otherwise=(
    "With its {count} highest heads masked, {model} misses {value} points more needles {ci} than "
    "with {count} random heads: {verdict}."))
def live_needles_lost_beyond_others(live: Sweep, scores: HeadScores, artifact: str) -> Measured:
    """Needles that a sweep finds with random heads masked, minus with as many retrieval heads."""
    count = count_at(scores, tau_of(scores.model))
    return _lost(live, scores, HAYSTACK, ("non-retrieval", count), ("retrieval", count),
                 artifact=artifact, words={"model": scores.model, "count": count})


@declare("worse-from", unit="heads", place=LARGE, otherwise=(
    "Along its sweep, {model} is noticeably worse in {measure} from {value} heads on: {verdict}."))
def noticeably_worse_from(model: str, measure: str, curve: pd.DataFrame, artifact: str) -> Measured:
    """Fewest highest heads from which on a measure is noticeably worse; undecided if at none."""
    count = worse_from(curve, sign=1 if measure in ("repetition", "perplexity") else -1)
    return Measured(Interval(math.nan if count is None else count, math.nan, math.nan), [artifact],
                    verdict=UNDECIDED if count is None else SHOWN,
                    words={"model": model, "measure": measure})
