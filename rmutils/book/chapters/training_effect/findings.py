"""What the training does to the heads and to the answers, and beside its controls."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd

from rmutils.book.chapters.training_effect import half_masked as halves
from rmutils.book.chapters.training_effect import layer_matched_training as layer_matched
from rmutils.book.chapters.training_effect import real_training as larger
from rmutils.book.chapters.training_effect.real_training import TRAINED, masked_heads_beyond
from rmutils.book.chapters.which_heads.pairs_from_other_heads import (
    OTHER_PAIRS,
    PairsFromOtherHeads,
    pairs_from_other_heads,
)
from rmutils.book.experiments.planned_runs import (
    BEFORE,
    RETMASK,
    planned_runs,
    seeds_said,
    trainings,
)
from rmutils.book.experiments.real_tasks import difference
from rmutils.book.findings import Measured, declare, scaled
from rmutils.book.verdicts import MARGIN, Effect, blind_spot, quantity
from rmutils.core.errors import NotStored, require
from rmutils.heads import head_change
from rmutils.heads.scores import HeadScores
from rmutils.pipeline.retmask import RetMaskRun
from rmutils.preference.strategies import STRATEGIES
from rmutils.stats import Interval, contrast

LARGER, STORED, STRATEGY = "fig-real-training", "fig-effect-stored", "fig-effect-strategies"
HALF, LIVE = "fig-half-masked", "fig-effect-live"
SCORE, SHARE, HEADROOM = "score", "share of the score before", "share of the headroom"


@quantity("RetMask changes the mean retrieval score of {model} by {effect} %", scale=100)
def mean_score_change(model: str) -> Effect:
    """Change of the mean retrieval score of all heads by RetMask, as a share of it before."""
    return _change(model, head_change.ALL, "relative change", SHARE)


@declare("masked-heads-rise", unit="points", place=STRATEGY, otherwise=(
    "{strategy} changes the scores of the masked heads of {model} by {value} points {ci}: "
    "{verdict}."))
@quantity("{strategy} changes the scores of the masked heads of {model} by {effect} points",
          scale=100)
def retrieval_heads_change(model: str, strategy: str = RETMASK) -> Effect:
    """Change of the mean score of the retrieval heads by a training."""
    return _change(model, head_change.RETRIEVAL, "change", SCORE, strategy)


def masked_heads_after(model: str, cases: head_change.Cases = "both") -> dict[str, Effect]:
    """Strategy -> `retrieval_heads_change` by it, of those whose planned runs are stored."""
    found = {}
    for strategy in dict.fromkeys((RETMASK, *(c.strategy for c in planned_runs(model)))):
        with suppress(NotStored):
            found[strategy] = _change(model, head_change.RETRIEVAL, "change", SCORE, strategy,
                                      cases)
    return found


@quantity("RetMask's change of the scores of the masked heads of {model}, minus that of other "
          "heads, is {effect} points", scale=100)
def retrieval_heads_change_beyond_others(model: str) -> Effect:
    """Change of the mean score of the retrieval heads by RetMask, minus that of all other heads."""
    return _change(model, f"retrieval minus {head_change.OTHER}", "change", SCORE)


@declare("selective-rise", unit="percent of headroom", place=STORED, otherwise=(
    "Of what they lack to a score of 100, the masked heads of {model} gain {value} percentage "
    "points {more|less} {ci} than its other heads: {verdict}."))
@quantity("the share of the gap to a score of 1 that RetMask closes in the masked heads of "
          "{model}, minus that in its other heads, is {effect} percentage points", scale=100)
def selective_change(model: str) -> Effect:
    """Change of the retrieval heads by RetMask as a share of their headroom (what is missing to
    a score of 1), minus that of all other heads."""
    return _change(model, f"retrieval minus {head_change.OTHER}", "headroom change", HEADROOM)


@quantity("the scores of the masked heads of {model} after RetMask minus those after {strategy} "
          "are {effect} points", scale=100)
def retrieval_heads_change_beyond(model: str, strategy: str) -> Effect:
    """Score of the retrieval heads after RetMask, minus that after another strategy, seed by
    seed, over the cases that both trained models solve."""
    if model in TRAINED:
        return masked_heads_beyond(model, strategy)
    ours, theirs = trainings(model, RETMASK), trainings(model, strategy)
    pairs = [head_change.PairedDetection(other.after, own.after, _retrieval_heads(own))
             for own, other in zip(ours, theirs, strict=True)]
    return _row(head_change.training_effect(pairs, cases="both"), "change", SCORE, [*ours, *theirs],
                head_change.RETRIEVAL)


@quantity("{strategy} changes the share of needles that {model} finds by {effect} percentage "
          "points", scale=100)
def needles_found_change(model: str, strategy: str = RETMASK) -> Effect:
    """Change of the share of needles found by a training, on the grid of the detection."""
    runs = trainings(model, strategy)
    blind = blind_spot(100 * runs[0].before.cases["success"].mean(), 0, "needles found")
    pairs = [head_change.PairedDetection(run.before, run.after, _retrieval_heads(run)) for run
             in runs]
    return _row(head_change.needles_found(pairs), "change", "share of needles", runs, blind=blind)


@declare("needles-change", unit="points", place=STORED, otherwise=(
    "{strategy} changes the needles that {model} finds by {value} points {ci}: {verdict}."))
def needles_change(model: str, strategy: str = RETMASK) -> Measured:
    """The same with a p over needles, which is not corrected."""
    runs = trainings(model, strategy)
    one = Measured.of(needles_found_change(model, strategy), 100,
                      strategy=STRATEGIES[strategy].name)
    return replace(one, p=_p_of_needles(runs[0].before, [run.after for run in runs]))


def _p_of_needles(before: HeadScores, after: Sequence[HeadScores]) -> float:
    """Compare the needles found before and after."""
    found = np.stack([halves.success_of(one) - halves.success_of(before).astype(float)
                      for one in after], axis=1)
    return contrast(found, before.cases["needle"].to_numpy()).p


def _retrieval_heads(run: RetMaskRun) -> list[tuple[int, int]]:
    return run.before.select(tau=run.artifact.manifest["config"]["tau"])


def _change(model: str, group: str, quantity: str, unit: str, strategy: str = RETMASK,
            cases: head_change.Cases = "both") -> Effect:
    """A change in the heads that RetMask masks, over cases that are successful both times."""
    runs = trainings(model, strategy)
    pairs = [head_change.PairedDetection(run.before, run.after, _retrieval_heads(ours))
             for run, ours in zip(runs, trainings(model, RETMASK), strict=False)]
    # Two seeds do not tell how much training runs differ.
    table = head_change.training_effect(pairs, cases=cases, drawn=model not in TRAINED)
    before = table[(table["group"] == (head_change.ALL if group == head_change.ALL
                                       else head_change.RETRIEVAL))
                   & (table["quantity"] == "before")].iloc[0]["value"]
    full = before > 1 - MARGIN / 100
    effect = _row(table, quantity, unit, runs, group, f"the heads score {before:.2f} of 1 before "
                f"training, so they cannot rise by {MARGIN / 100:g}" if full else "")
    return replace(effect, note=f"{effect.note}, interval over needles"
                   ) if model in TRAINED else effect


def _row(table: pd.DataFrame, quantity: str, unit: str, runs: list[RetMaskRun],
         group: str | None = None, blind: str = "") -> Effect:
    chosen = table[table["quantity"] == quantity]
    row = (chosen if group is None else chosen[chosen["group"] == group]).iloc[0]
    return Effect.of(Interval(*row[["value", "low", "high"]]), unit,
                     [run.artifact for run in runs], runs[0].before.cases["needle"].nunique(),
                     seeds_said(run.artifact.manifest["config"]["seed"] for run in runs), blind)


@cache
def larger_model() -> larger.RealTraining:
    """Look up what RetMask and its control do to the larger model."""
    found = larger.real_training()
    if not found.pairs:
        require([larger.REAL_TRAINING.command])
    return found


def _needles(scores: HeadScores) -> int:
    return int(scores.cases["needle"].nunique())


@declare("larger-scores-rise", unit="points", place=LARGER, otherwise=(
    "RetMask changes the scores of the heads that it masks in the larger model by {value} points "
    "{ci}, compared with {against}: {verdict}."))
def larger_scores_rise(against: str) -> Measured:
    """Scores of the larger model's masked heads, minus before training or after the control."""
    found = larger_model()
    row = found.scores().set_index(["against", "seed"]).loc[(against, "both")]
    return Measured.row(row, found.artifacts, 100, p="p", against=larger.NAMES[against],
                        clusters=_needles(found.pairs[0][0].before))


@cache
def _larger_answers() -> pd.DataFrame:
    return larger_model().answers().set_index(["outcome", "against", "seed"])


@declare("larger-answers-change", unit="points", place=LARGER, otherwise=(
    "RetMask changes the {outcome} of the larger model by {value} points {ci}, compared with "
    "{against}: {verdict}."))
def larger_answers_change(outcome: str, against: str) -> Measured:
    """Needles found, tasks or abilities after RetMask, minus before or after the control."""
    found, rows = larger_model(), _larger_answers()
    if (outcome, against, "both") not in rows.index:
        require([larger.REAL_TRAINING.command])
    return Measured.row(rows.loc[(outcome, against, "both")], found.artifacts, p="p",
                        against=larger.NAMES[against])


@declare("larger-needles-found", unit="percent", place=LARGER,
         otherwise="{arm}, the larger model finds {value} % of the needles.")
def larger_needles_found(arm: str) -> Measured:
    """Share of needles that the larger model finds: before, after RetMask, after its control."""
    found = larger_model()
    levels = found.levels()
    own = levels[(levels["outcome"] == larger.UNITS["needles"])
                 & (levels["arm"] == larger.NAMES[arm])]
    return Measured.count(own["value"].mean(), found.artifacts, arm=larger.NAMES[arm])


@declare("larger-form-change", unit="points", place=LARGER, otherwise=(
    "Of the general abilities, following instructions about form changes by {value} points {ci}: "
    "{verdict}."))
def larger_form_change() -> Measured:
    """The task that general abilities gain most in: instructions about form; over both seeds."""
    found = larger_model()
    after, before = ([table[table["task"] == "formats"] for table in tables] for tables in (
        [found.outcomes["abilities", RETMASK, seed] for seed in larger.SEEDS],
        [found.outcomes["abilities", BEFORE, 0]] * len(larger.SEEDS)))
    change = difference([*zip(after, before, strict=True)], "score", "sample", "task")
    return Measured(change.interval, found.artifacts, change.clusters, change.p)


@declare("masked-heads-rise-over-all", unit="points", place=STORED, otherwise=(
    "Over all solved cases, RetMask changes the scores of the masked heads of {model} by {value} "
    "points {ci}: {verdict}."))
def masked_heads_rise_over_all(model: str) -> Measured:
    """The same over all cases solved before, and all solved after."""
    return Measured.of(masked_heads_after(model, "successful")[RETMASK], 100)


@cache
def _again() -> PairsFromOtherHeads:
    found = pairs_from_other_heads()
    if not found.repeated:
        require([OTHER_PAIRS.command])
    return found


@declare("masked-heads-rise-again", unit="points", place=STORED, otherwise=(
    "Trained again with other seeds and instructions, the masked heads of SmolLM2 change by "
    "{value} points {ci}: {verdict}."))
def masked_heads_rise_again() -> Measured:
    """The rise of SmolLM2's masked heads in further runs, each with instructions of its own."""
    score, _ = _again().again()
    return Measured(scaled(score), _again().repeated, _needles(_again().before))


@declare("needles-change-again", unit="points", place=STORED, otherwise=(
    "Trained again with other seeds and instructions, SmolLM2's needles found change by {value} "
    "points {ci}: {verdict}."))
def needles_change_again() -> Measured:
    """Change of the needles found in the same runs; p is not corrected."""
    again = _again()
    p = _p_of_needles(again.before, [one.after for one in again.by_copy])
    return Measured(scaled(again.again()[1]), again.repeated, _needles(again.before), p)


@cache
def _matched() -> layer_matched.LayerMatchedTraining:
    found = layer_matched.layer_matched_training()
    if len(found.runs) < found.planned:
        require([layer_matched.LAYER_MATCHED.command])
    return found


@declare("masked-heads-beyond-layers", unit="points", place=STRATEGY, otherwise=(
    "After RetMask, the masked heads of SmolLM2 score {value} points {more|less} {ci} than after "
    "masking others of their layers: {verdict} by the rule of the plan."))
def masked_heads_beyond_layers() -> Measured:
    """Scores of SmolLM2's masked heads after RetMask, minus after a control of the same layers."""
    found = _matched()
    return Measured(scaled(found.beyond_control()), found.artifacts,
                    _needles(found.runs[0][0].before))


@declare("beyond-layers-on-one-machine", unit="points", place=STRATEGY, otherwise=(
    "Trained again on the kind of machine that trained its control, RetMask ends {value} points "
    "{more|less} {ci} above it: {verdict}."))
def beyond_layers_on_one_machine() -> Measured:
    """The same for one seed, with both trained on a processor."""
    found = layer_matched.on_one_machine()
    require([] if found else [layer_matched.REPEATED_COMMAND])
    assert found
    return Measured(scaled(found.beyond_control()), found.artifacts,
                    _needles(found.runs[0][0].before))


@declare("needles-beyond-layers", unit="points", place=STRATEGY, otherwise=(
    "RetMask finds {value} points {more|fewer} needles {ci} on SmolLM2 than a control that masks "
    "others of the same layers: {verdict}."))
def needles_beyond_layers() -> Measured:
    """Needles found after RetMask, minus after a control of the same layers."""
    found = _matched()
    return Measured.row(found.effects().set_index("what").loc[head_change.FOUND], found.artifacts,
                        100, clusters=_needles(found.runs[0][0].before))


@cache
def _halves() -> halves.HalfMasked:
    found = halves.half_masked()
    if len(found.runs) < found.planned:
        require([halves.HALF_MASKED.command])
    return found


@cache
def _rises() -> pd.DataFrame:
    return _halves().rises().set_index("what")


@declare("half-rises", unit="points", place=HALF, otherwise=(
    "With half of SmolLM2's retrieval heads masked, the {half} changes by {value} points {ci}: "
    "{verdict}."))
def half_rises(half: str) -> Measured:
    """Rise of the masked half, of the spared half, or of heads that do not copy."""
    return Measured.row(_rises().loc[half], _halves().artifacts, 100, p="p",
                        clusters=_needles(_halves().whole.before))


@declare("half-difference", unit="points", place=HALF, otherwise=(
    "The masked half rises by {value} points {more|less} {ci} than the other half: {verdict} by "
    "the rule of the plan."))
def half_difference() -> Measured:
    """Rise of the masked half minus that of the spared half, by the rule of its plan."""
    row, masked = _rises().loc[halves.BEYOND], _rises().loc[halves.MASKED, "value"]
    return Measured.row(
        row, _halves().artifacts, 100, p="p", clusters=_needles(_halves().whole.before),
        verdict=halves.verdict(Interval(*row[["value", "low", "high"]]), row["p"], masked))


@declare("rise-on-other-needles", unit="points", place=STORED, otherwise=(
    "Heads of {model} that other needles chose change by {value} points {ci}: {verdict}."))
def rise_on_other_needles(model: str) -> Measured:
    """Change of heads that were chosen on needles other than those that measure them."""
    runs = trainings(model, RETMASK)
    pairs = [head_change.PairedDetection(run.before, run.after, run.heads) for run in runs]
    row = head_change.split_half(pairs, cases="both").set_index("quantity").loc["change"]
    return Measured.row(row, [run.artifact for run in runs], 100, clusters=_needles(runs[0].before))


@declare("live-heads-rise", unit="points", place=LIVE, otherwise=(
    "In the live run, the scores of the {group} of {model} change by {value} points {ci}: "
    "{verdict}."))
def live_heads_rise(pair: head_change.PairedDetection, artifact: str,
                    group: str = head_change.RETRIEVAL) -> Measured:
    """Change of a group of heads by the live run, over cases solved both times."""
    table = head_change.training_effect([pair], cases="both").set_index(["group", "quantity"])
    return Measured.row(table.loc[(group, "change")], [artifact], 100, model=pair.before.model,
                        clusters=_needles(pair.before))


@declare("live-needles-change", unit="points", place=LIVE, otherwise=(
    "The live run changes the needles that {model} finds by {value} points {ci}: {verdict}."))
def live_needles_change(pair: head_change.PairedDetection, artifact: str) -> Measured:
    """Change of the needles found by the live run."""
    table = head_change.needles_found([pair]).set_index("quantity")
    return Measured.row(table.loc["change"], [artifact], 100, model=pair.before.model,
                        clusters=_needles(pair.before))
