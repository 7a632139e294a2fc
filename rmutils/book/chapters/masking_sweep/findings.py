"""What masking costs: in four real models, in the sweeps, and beyond a control."""

import math
from dataclasses import replace
from functools import cache, partial

import pandas as pd

from rmutils.book.chapters.masking_sweep import sweet_spot
from rmutils.book.chapters.masking_sweep.experiment import (
    Sweep,
    count_at,
    scored,
    shown_sweep,
    sweep_stored,
)
from rmutils.book.chapters.masking_sweep.larger_sweeps import (
    BY_PLAN,
    LargerSweep,
    detection_of,
    larger_sweep,
)
from rmutils.book.experiments import needles_left
from rmutils.book.experiments.masked_needles import ANYWHERE, COPY, EVERY, NEWEST
from rmutils.book.experiments.masked_needles import MATCHED as SAME_LAYERS
from rmutils.book.experiments.needles_left import compare_controls
from rmutils.book.experiments.real_models import masking_stored, real_models
from rmutils.book.experiments.sweep_questions import HAYSTACK
from rmutils.book.figures.style import CALLED
from rmutils.book.findings import (
    BY_SIGN,
    NONE,
    SHOWN,
    UNDECIDED,
    Measured,
    Verdict,
    declare,
    finding,
    scaled,
)
from rmutils.book.verdicts import CannotShow, Effect, blind_spot, quantity
from rmutils.core.errors import NotStored
from rmutils.core.experiment import load_plan
from rmutils.heads.masking import MATCHED, count_displaced, draw_layer_matched
from rmutils.heads.scores import HeadScores
from rmutils.models.known_models import tau_of
from rmutils.stats import Interval

REAL, LAYERS = "fig-real-needles", "fig-heads-or-layers"
LIVE, LARGE, SPEECH = "fig-sweep-live", "fig-sweep-large", "fig-speech-live"
BY_SCORE, OTHERS = "retrieval", "non-retrieval"


@quantity("without its retrieval heads {model} misses {effect} percentage points more needles than "
          "without the same number of others from all layers", scale=100)
def needles_lost_beyond_others(model: str) -> Effect:
    """Share of needles that are found with as many other heads masked, but not without the
    retrieval heads; minus those of which the opposite holds."""
    if model in BY_PLAN:
        return needles_lost(model, ANYWHERE)
    swept, scores, artifact = _stored(model)
    count = count_at(scores, tau_of(model))
    return _answers(swept, HAYSTACK, (OTHERS, count), (BY_SCORE, count), artifact)


@declare("needles-lost-beyond-same-layers", unit="points", place=LAYERS, otherwise=(
    "Without its retrieval heads {model} misses {value} points {more|fewer} needles {ci} than "
    "without the same number of other heads of the same layers: {verdict}."))
@quantity("without its retrieval heads {model} misses {effect} percentage points more needles than "
          "without the same number of others of these layers", scale=100)
def needles_lost_beyond_same_layers(model: str) -> Effect:
    """Share of needles that are found with as many other heads of the same layers masked, but
    not without the retrieval heads; minus those of which the opposite holds."""
    if model in BY_PLAN:
        return needles_lost(model, SAME_LAYERS)
    swept, scores, artifacts = shown_sweep(model)
    count = count_at(scores, tau_of(model))
    heads = scores.ranking()[:count]
    displaced = count_displaced(draw_layer_matched(scores.shape, heads, exclude=heads), heads)
    note = (f"{displaced} of the {count} others come from another layer, since their own has too "
            "few" if displaced else "")
    return _answers(swept, HAYSTACK, (MATCHED, count), (BY_SCORE, count),
                    *(one.name for one in artifacts), note=note)


@declare("answers-lost", unit="points", place=LARGE, otherwise=(
    "Without its retrieval heads {model} loses {value} points of its answers {ci} of the kind "
    "`{measure}`: {verdict}."))
@quantity("without its retrieval heads {model} loses {effect} percentage points of its answers to "
          "the {measure}", scale=100)
def answers_lost_at_tau(model: str, measure: str) -> Effect:
    """Share of right answers of a kind that is lost without the retrieval heads."""
    swept = larger_sweep(model)
    return _answers(swept.sweep, measure, sweet_spot.UNMASKED, (BY_SCORE, swept.at_tau),
                    swept.artifact.name)


@quantity("with {heads} of 1,024 heads masked, or as large a share, {model} loses {effect} "
          "percentage points of its answers to the {measure}", scale=100)
def answers_lost(model: str, measure: str, heads: int) -> Effect:
    """Share of right answers of a kind that is lost without so many of the highest heads."""
    swept = larger_sweep(model)
    return _answers(swept.sweep, measure, sweet_spot.UNMASKED, (BY_SCORE, swept.nearest(heads)),
                    swept.artifact.name)


@quantity("with {heads} of 1,024 heads masked, or as large a share, {model} gets {effect} % of the "
          "{measure} right", scale=100)
def answers_left(model: str, measure: str, heads: int) -> Effect:
    """Share of right answers of a kind that is left without so many of the highest heads."""
    swept = larger_sweep(model)
    return _answers(swept.sweep, measure, (BY_SCORE, swept.nearest(heads)), None,
                    swept.artifact.name)


@quantity("with {heads} of 1,024 heads masked, or as large a share, {model} misses {effect} "
          "percentage points more needles than with the fewest masked", scale=100)
def needles_lost_by_more_heads(model: str, heads: int) -> Effect:
    """Share of needles lost without so many of the highest heads, minus that without the fewest."""
    swept = larger_sweep(model)
    return _answers(swept.sweep, HAYSTACK, (BY_SCORE, swept.counts[0]),
                    (BY_SCORE, swept.nearest(heads)), swept.artifact.name)


@quantity("without its retrieval heads the share of what {model} says again changes by {effect} "
          "percentage points", scale=100)
def repetition_added_at_tau(model: str) -> Effect:
    """Rise of the repetition rate of short answers without the retrieval heads; mean over their
    number and the two next to it in the sweep, because few answers are asked at each."""
    swept = larger_sweep(model)
    at = swept.counts.index(swept.at_tau)
    return _repetition(swept, swept.counts[max(at - 1, 0):at + 2])


@declare("repetition-at-most", unit="percentage points", place=LARGE, otherwise=(
    "With the most heads masked, {model} repeats {value} percentage points {more|less} of what it "
    "says {ci}: {verdict}."))
@quantity("with the most heads masked the share of what {model} says again changes by {effect} "
          "percentage points", scale=100)
def repetition_added_at_most(model: str) -> Effect:
    """Rise of the repetition rate of short answers at the largest number of masked heads."""
    swept = larger_sweep(model)
    return _repetition(swept, swept.counts[-1:])


@declare("answers-left", unit="percent", place=LARGE, otherwise=(
    "With {heads} of 1,024 heads masked, or as large a share, {model} gets {value} % of the "
    "{measure} right {ci}."))
def percent_left(model: str, measure: str, heads: int) -> Measured:
    """Percent of right answers without so many of the highest heads; 0 for the whole model."""
    swept = larger_sweep(model)
    effect = answers_left(model, measure, heads) if heads else _answers(
        swept.sweep, measure, sweet_spot.UNMASKED, None, swept.artifact.name)
    return replace(Measured.of(effect, 100, model=model, measure=measure, heads=heads),
                   verdict=NONE)


def _stored(model: str) -> tuple[Sweep, HeadScores, str]:
    scores, _ = scored(model, compute="never")
    swept, artifact = sweep_stored(model, scores, compute="never")
    return swept, scores, artifact.name


def _answers(swept: Sweep, measure: str, mask: sweet_spot.Mask, minus: sweet_spot.Mask | None,
             *artifacts: str, note: str = "") -> Effect:
    """Right answers under one mask minus those under another, on the same questions."""
    rows = swept.answers[swept.answers["task"].isin(sweet_spot.SHARES[measure])]
    if rows.empty:
        raise CannotShow(f"no {measure} are within the model's reach", "share of answers",
                         artifacts)
    whole = rows.loc[rows["policy"] == "whole", "correct"].mean()
    return Effect.of(sweet_spot.mean_under(rows, "correct", mask, minus), "share of answers",
                     artifacts,
                     _clusters(rows), note, blind_spot(100 * whole, 0, measure, ceiling=False))


def _clusters(rows: pd.DataFrame) -> int:
    return len(rows[["task", "cluster"]].drop_duplicates())


def _repetition(swept: LargerSweep, counts: list[int]) -> Effect:
    rows = swept.sweep.speech
    masked = rows[(rows["policy"] == BY_SCORE) & rows["count"].isin(counts)]
    whole = rows[(rows["policy"] == sweet_spot.UNMASKED[0])
                 & (rows["count"] == sweet_spot.UNMASKED[1])]
    one_mask = pd.concat([masked.assign(count=counts[0], draw=masked["count"]), whole])
    added = sweet_spot.mean_under(one_mask, sweet_spot.REPETITION, (BY_SCORE, counts[0]),
                                  sweet_spot.UNMASKED)
    return Effect.of(added, "share of spans", [swept.artifact.name], _clusters(rows))


def needles_lost(model: str, control: str) -> Effect:
    """Needles found without a control's heads minus those found without heads above tau."""
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


real_masking = partial(needles_left.stored, "masking")
"""What the four real models find without some of their heads."""


def _missing(model: str) -> NotStored:
    told = [one for one in real_masking().missing if model in one] or real_masking().missing
    return NotStored(" ".join(told) or f"No masking of {model} is planned.")


def _compared(table: pd.DataFrame, model: str, count: int | None = None, scale: float = 100, *,
              p: str = "", verdict: Verdict | None = None) -> Measured:
    """The row of a model, and of a number of heads."""
    own = table[(table["model"] == model) & (True if count is None else table["count"] == count)]
    if own.empty:
        raise _missing(model)
    answers = real_masking().answers
    return Measured.row(own.iloc[0], real_masking().artifacts, scale, p=p,
                        clusters=int(answers.loc[answers["model"] == model, "needle"].nunique()),
                        verdict=verdict, model=model, count=count)


@cache
def twelve_percent() -> pd.DataFrame:
    """Apply the plan's rule: without the 12 % of heads that copy most, beside its control."""
    heads = needles_left.stored("detection").results
    return needles_left.primary(real_masking().answers, load_plan("real_models"),
                                {name: one.mean.size for name, one in heads.items()})


@declare("needles-lost-12-percent", unit="points", place=REAL, otherwise=(
    "Without the 12 % of heads that copy most, {model} finds {value} points {fewer|more} needles "
    "{ci} than without other heads of the same layers: {verdict} by the rule of the plan."))
def needles_lost_12_percent(model: str) -> Measured:
    """Needles found without same-layer heads, minus without the heads that copy most."""
    by_rule = twelve_percent().set_index("model")["shown"]
    return _compared(twelve_percent(), model, p="p_holm",
                     verdict=BY_SIGN[int(by_rule.get(model, 0))])


@declare("needles-lost-top", unit="points", place=REAL, otherwise=(
    "Without its {count} highest heads, {model} finds {value} points {fewer|more} needles {ci} "
    "than without {count} others of the same layers: {verdict}."))
def needles_lost_top(model: str, count: int) -> Measured:
    """The same at another number of heads; p is not corrected."""
    return _compared(compare_controls(_by_copy()), model, count, p="p")


@declare("needles-lost-everywhere", unit="points", place=LAYERS, otherwise=(
    "Masked at every position, the {count} heads that copy most cost {model} {value} points "
    "{more|fewer} needles {ci} than other heads of the same layers: {verdict}."))
def needles_lost_everywhere(model: str, count: int | None = None) -> Measured:
    """The same with heads masked at every position of the prompt, 12 % of them if no number is
    given; p is not corrected."""
    plan = load_plan("real_models")
    answers = real_masking().answers
    rows = compare_controls(answers[answers["position"] == EVERY])
    rows = rows[rows["length"] == plan.content["masking"]["length"]["default"]]
    twelve = twelve_percent().set_index("model")["count"]
    return _compared(rows, model, count or twelve.get(model), p="p")


FEW = {"smollm2-135m": 4, "gemma3-270m": 4, "qwen2.5-coder-0.5b": 17, "qwen2.5-coder-1.5b": 17}
"""A few heads of each model, of the numbers that were asked."""


def when_and_how_many() -> pd.DataFrame:
    """Percent of needles found without the heads that copy most / without others of their layers,
    by how many heads are off and when, with a sign for the verdict on the difference."""
    answers = real_masking().answers
    length = load_plan("real_models").content["masking"]["length"]["default"]
    rows = compare_controls(answers[answers["length"] == length])
    levels = (100 * rows.set_index(["model", "position", "count"])[["whole", "top", "control"]])
    eighth = twelve_percent().set_index("model")["count"].to_dict()
    table = [{"heads off": "none", "when": "", **{
        CALLED[model]: f"{levels['whole'][model, NEWEST, FEW[model]]:.0f}" for model in FEW}}]
    for heads, counts in (("4; in the Qwen models 17", FEW), ("12 %", eighth)):
        for when, position in (("while it answers", NEWEST), ("from the first word on", EVERY)):
            row = {"heads off": heads, "when": when}
            for model, count in counts.items():
                if (model, position, count) not in levels.index:
                    continue
                lost = (finding("needles-lost-everywhere", model, count) if position == EVERY else
                        finding("needles-lost-12-percent", model) if counts is eighth else
                        finding("needles-lost-top", model, count))
                top, control = levels.loc[(model, position, count), ["top", "control"]]
                row[CALLED[model]] = (f"{top:.0f} / {control:.0f} "
                                      f"{'✓' if lost.verdict == SHOWN else '?'}")
            table.append(row)
    return pd.DataFrame(table)


@declare("needles-found", unit="percent", place=REAL,
         otherwise="{model} finds {value} % of the needles.")
def needles_found(model: str, policy: str = "whole", count: int = 0) -> Measured:
    """Share of needles that a real model finds."""
    rows = needles_left.shares_found(_by_copy())
    return _compared(rows[rows["policy"] == policy], model, count, verdict=NONE)


def _by_copy() -> pd.DataFrame:
    if not real_masking().results:
        raise _missing("")
    return needles_left.by_copy(real_masking().answers, load_plan("real_models"))


def _lost(live: Sweep, scores: HeadScores, measure: str, *masks: tuple[str, int],
          artifact: str, words: dict[str, object]) -> Measured:
    rows = live.answers[live.answers["task"].isin(sweet_spot.SHARES[measure])]
    found = sweet_spot.mean_under(rows, "correct", *masks)
    clusters = len(rows[["task", "cluster"]].drop_duplicates())
    return Measured(scaled(found), [artifact], clusters, words=words)


@declare("live-answers-lost", unit="points", place=LIVE, otherwise=(
    "With its {count} highest heads masked, {model} loses {value} points of its answers {ci} to "
    "the {measure}: {verdict}."))
def live_answers_lost(live: Sweep, scores: HeadScores, measure: str, artifact: str) -> Measured:
    """Right answers that a sweep loses when all heads that reach the model's τ are masked."""
    count = count_at(scores, tau_of(scores.model))
    return _lost(live, scores, measure, sweet_spot.UNMASKED, ("retrieval", count),
                 artifact=artifact,
                 words={"model": scores.model, "count": count, "measure": measure})


@declare("live-needles-lost-beyond-others", unit="points", place=LIVE, otherwise=(
    "With its {count} highest heads masked, {model} misses {value} points {more|fewer} needles "
    "{ci} than with {count} random heads: {verdict}."))
def live_needles_lost_beyond_others(live: Sweep, scores: HeadScores, artifact: str) -> Measured:
    """Needles that a sweep finds with random heads masked, minus with as many retrieval heads."""
    count = count_at(scores, tau_of(scores.model))
    return _lost(live, scores, HAYSTACK, ("non-retrieval", count), ("retrieval", count),
                 artifact=artifact, words={"model": scores.model, "count": count})


@declare("worse-from", unit="heads", place=LARGE, otherwise=(
    "Along its sweep, {model} is noticeably worse in {measure} from {value} heads on: {verdict}."))
def noticeably_worse_from(model: str, measure: str, curve: pd.DataFrame, artifact: str) -> Measured:
    """Fewest highest heads from which on a measure is noticeably worse; undecided if at none."""
    count = sweet_spot.worse_from(curve, sign=1 if measure in ("repetition", "perplexity") else -1)
    return Measured(Interval(math.nan if count is None else count, math.nan, math.nan), [artifact],
                    verdict=UNDECIDED if count is None else SHOWN)
