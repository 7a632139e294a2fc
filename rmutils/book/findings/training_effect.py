"""What the chapter says the training does: to the heads, to the answers, and beside its controls.

Scores are in points: a head that copies all of every needle has 100.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pandas as pd

from rmutils.book.chapters.training_effect import half_masked as halves
from rmutils.book.chapters.training_effect import layer_matched_training as layer_matched
from rmutils.book.chapters.training_effect import real_training as larger
from rmutils.book.chapters.which_heads.pairs_from_other_heads import (
    PairsFromOtherHeads,
    pairs_from_other_heads,
)
from rmutils.book.claims.effects import head_effects
from rmutils.book.experiments.planned_runs import BEFORE, RETMASK
from rmutils.book.experiments.real_tasks import difference
from rmutils.book.findings.registry import AGAINST, SHOWN, UNDECIDED, Measured, Verdict, declare
from rmutils.core.errors import NotStored
from rmutils.heads.head_change import (
    FOUND,
    RETRIEVAL,
    PairedDetection,
    needles_found,
    split_half,
    training_effect,
)
from rmutils.preference.strategies import STRATEGIES
from rmutils.stats import Interval

LARGER, STORED, STRATEGY = "fig-real-training", "fig-effect-stored", "fig-effect-strategies"
HALF, LIVE = "fig-half-masked", "fig-effect-live"
ENDS = ["value", "low", "high"]


def _points(row: pd.Series | Mapping[str, float], scale: float = 100) -> Interval:
    return Interval(*(scale * float(row[end]) for end in ENDS))


@cache
def larger_model() -> larger.RealTraining:
    """Look up what RetMask and its control do to the larger model."""
    found = larger.real_training()
    if not found.pairs:
        raise NotStored(f"No pair of runs on {larger.MODEL} is stored. `rmutils run "
                        "06_training_effect -p compute_real auto` makes them.")
    return found


def _names(artifacts: list) -> list[str]:
    return [artifact.name for artifact in artifacts]


@declare("larger-scores-rise", unit="points", place=LARGER, otherwise=(
    "RetMask changes the scores of the heads that it masks in the larger model by {value} points "
    "{ci}, compared with {against}: {verdict}."))
def larger_scores_rise(against: str) -> Measured:
    """Scores of the larger model's masked heads, minus before training or after the control."""
    found = larger_model()
    row = found.scores().set_index(["against", "seed"]).loc[(against, "both")]
    return Measured(_points(row), _names(found.artifacts),
                    found.pairs[0][0].before.cases["needle"].nunique(), row["p"],
                    words={"against": larger.NAMES[against]})


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
        raise NotStored(f"The {outcome} of {larger.MODEL} are not stored. `rmutils run "
                        "06_training_effect -p compute_real auto` makes them.")
    row = rows.loc[(outcome, against, "both")]
    return Measured(_points(row, 1), _names(found.artifacts), None, row["p"],
                    words={"outcome": outcome, "against": larger.NAMES[against]})


@declare("larger-needles-found", unit="percent", place=LARGER,
         otherwise="{arm}, the larger model finds {value} % of the needles.")
def larger_needles_found(arm: str) -> Measured:
    """Share of needles that the larger model finds: before, after RetMask, after its control."""
    found = larger_model()
    levels = found.levels()
    own = levels[(levels["outcome"] == larger.UNITS["needles"])
                 & (levels["arm"] == larger.NAMES[arm])]
    return Measured(Interval(own["value"].mean(), float("nan"), float("nan")),
                    _names(found.artifacts), words={"arm": larger.NAMES[arm]})


@declare("larger-form-change", unit="points", place=LARGER, otherwise=(
    "Of the general abilities, following instructions about form changes by {value} points {ci}: "
    "{verdict}."))
def larger_form_change() -> Measured:
    """The one task that general abilities gain in: instructions about form; one seed was asked."""
    found = larger_model()
    after, before = (table[table["task"] == "formats"] for table in (
        found.outcomes["abilities", RETMASK, 2], found.outcomes["abilities", BEFORE, 0]))
    change = difference([(after, before)], "score", "sample", "task")
    return Measured(change.interval, _names(found.artifacts), change.clusters, change.p)


@declare("masked-heads-rise", unit="points", place=STRATEGY, otherwise=(
    "{strategy} changes the scores of the masked heads of {model} by {value} points {ci}: "
    "{verdict}."))
def masked_heads_rise(model: str, strategy: str = RETMASK) -> Measured:
    """Change of the masked heads' scores by a training, as the claims count it."""
    return Measured.of(head_effects.retrieval_heads_change(model, strategy), 100, model=model,
                       strategy=STRATEGIES[strategy].name)


@declare("masked-heads-rise-over-all", unit="points", place=STORED, otherwise=(
    "Over all solved cases, RetMask changes the scores of the masked heads of {model} by {value} "
    "points {ci}: {verdict}."))
def masked_heads_rise_over_all(model: str) -> Measured:
    """The same over all cases solved before, and all solved after."""
    found = head_effects.masked_heads_after(model, "successful")
    return Measured.of(found[RETMASK], 100, model=model)


@declare("needles-change", unit="points", place=STORED, otherwise=(
    "{strategy} changes the needles that {model} finds by {value} points {ci}: {verdict}."))
def needles_change(model: str, strategy: str = RETMASK) -> Measured:
    """Change of the needles found by a training, as the claims count it."""
    return Measured.of(head_effects.needles_found_change(model, strategy), 100, model=model,
                       strategy=STRATEGIES[strategy].name)


@cache
def _again() -> PairsFromOtherHeads:
    found = pairs_from_other_heads()
    if not found.repeated:
        raise NotStored("No further runs are stored. `rmutils run which_heads -p compute_pairs "
                        "auto` makes them.")
    return found


@declare("masked-heads-rise-again", unit="points", place=STORED, otherwise=(
    "Trained again with other seeds and instructions, the masked heads of SmolLM2 change by "
    "{value} points {ci}: {verdict}."))
def masked_heads_rise_again() -> Measured:
    """The rise of SmolLM2's masked heads in further runs, each with instructions of its own."""
    score, _ = _again().again()
    return Measured(Interval(*(100 * end for end in score)), _names(_again().repeated),
                    _again().before.cases["needle"].nunique())


@declare("needles-change-again", unit="points", place=STORED, otherwise=(
    "Trained again with other seeds and instructions, SmolLM2's needles found change by {value} "
    "points {ci}: {verdict}."))
def needles_change_again() -> Measured:
    """Change of the needles found in the same runs."""
    _, found = _again().again()
    return Measured(Interval(*(100 * end for end in found)), _names(_again().repeated),
                    _again().before.cases["needle"].nunique())


@cache
def _matched() -> layer_matched.LayerMatchedTraining:
    found = layer_matched.layer_matched_training()
    if len(found.runs) < found.planned:
        raise NotStored(f"{len(found.runs)} of {found.planned} seeds are stored. `rmutils run "
                        "06_training_effect -p compute_matched auto` makes the others.")
    return found


@declare("masked-heads-beyond-layers", unit="points", place=STRATEGY, otherwise=(
    "After RetMask, the masked heads of SmolLM2 score {value} points more {ci} than after masking "
    "others of their layers: {verdict} by the rule of the plan."))
def masked_heads_beyond_layers() -> Measured:
    """Scores of SmolLM2's masked heads after RetMask, minus after a control of the same layers."""
    found = _matched()
    beyond = found.beyond_control()
    verdict: Verdict = {"these heads had to be masked": SHOWN,
                        "masking others of their layers raises them more": AGAINST}.get(
        layer_matched.verdict(beyond, found.rise()), UNDECIDED)
    return Measured(Interval(*(100 * end for end in beyond)), _names(found.artifacts),
                    found.runs[0][0].before.cases["needle"].nunique(), verdict=verdict)


@declare("needles-beyond-layers", unit="points", place=STRATEGY, otherwise=(
    "RetMask finds {value} points more needles {ci} on SmolLM2 than a control that masks others of "
    "the same layers: {verdict}."))
def needles_beyond_layers() -> Measured:
    """Needles found after RetMask, minus after a control of the same layers."""
    rows = _matched().effects().set_index("what")
    return Measured(_points(rows.loc[FOUND]), _names(_matched().artifacts),
                    _matched().runs[0][0].before.cases["needle"].nunique())


@cache
def _halves() -> halves.HalfMasked:
    found = halves.half_masked()
    if len(found.runs) < found.planned:
        raise NotStored(f"{len(found.runs)} of {found.planned} splits are done. `rmutils run "
                        "06_training_effect -p compute_half_masked auto` makes the others.")
    return found


@cache
def _rises() -> pd.DataFrame:
    return _halves().rises().set_index("what")


@declare("half-rises", unit="points", place=HALF, otherwise=(
    "With half of SmolLM2's retrieval heads masked, the {half} changes by {value} points {ci}: "
    "{verdict}."))
def half_rises(half: str) -> Measured:
    """Rise of the masked half, of the spared half, or of heads that do not copy."""
    row = _rises().loc[half]
    return Measured(_points(row), _names(_halves().artifacts), _clusters(), row["p"],
                    words={"half": half})


@declare("half-difference", unit="points", place=HALF, otherwise=(
    "The masked half rises by {value} points more {ci} than the other half: {verdict} by the rule "
    "of the plan."))
def half_difference() -> Measured:
    """Rise of the masked half minus that of the spared half, by the rule of its plan."""
    row, masked = _rises().loc[halves.BEYOND], _rises().loc[halves.MASKED, "value"]
    told = halves.verdict(Interval(*row[ENDS]), row["p"], masked)
    return Measured(_points(row), _names(_halves().artifacts), _clusters(), row["p"],
                    verdict={halves.MORE: SHOWN, halves.ALIKE: AGAINST}.get(told, UNDECIDED))


def _clusters() -> int:
    return int(_halves().whole.before.cases["needle"].nunique())


@declare("rise-on-other-needles", unit="points", place=STORED, otherwise=(
    "Heads of {model} that other needles chose change by {value} points {ci}: {verdict}."))
def rise_on_other_needles(model: str) -> Measured:
    """Change of heads that were chosen on needles other than those that measure them."""
    runs = head_effects.trainings(model, RETMASK)
    pairs = [PairedDetection(run.before, run.after, run.heads) for run in runs]
    row = split_half(pairs, cases="both").set_index("quantity").loc["change"]
    return Measured(_points(row), [run.artifact.name for run in runs],
                    runs[0].before.cases["needle"].nunique(), words={"model": model})


@declare("selective-rise", unit="percent of headroom", place=STORED, otherwise=(
    "Of what they lack to a score of 100, the masked heads of {model} gain {value} percentage "
    "points more {ci} than its other heads: {verdict}."))
def selective_rise(model: str) -> Measured:
    """Gain of the masked heads as a share of their headroom, minus that of other heads."""
    return Measured.of(head_effects.selective_change(model), 100, model=model)


@declare("live-heads-rise", unit="points", place=LIVE, otherwise=(
    "In the live run, the scores of the {group} of {model} change by {value} points {ci}: "
    "{verdict}."))
def live_heads_rise(pair: PairedDetection, artifact: str, group: str = RETRIEVAL) -> Measured:
    """Change of a group of heads by the live run, over cases solved both times."""
    table = training_effect([pair], cases="both").set_index(["group", "quantity"])
    return Measured(_points(table.loc[(group, "change")]), [artifact],
                    pair.before.cases["needle"].nunique(),
                    words={"model": pair.before.model, "group": group})


@declare("live-needles-change", unit="points", place=LIVE, otherwise=(
    "The live run changes the needles that {model} finds by {value} points {ci}: {verdict}."))
def live_needles_change(pair: PairedDetection, artifact: str) -> Measured:
    """Change of the needles found by the live run."""
    table = needles_found([pair]).set_index("quantity")
    return Measured(_points(table.loc["change"]), [artifact],
                    pair.before.cases["needle"].nunique(), words={"model": pair.before.model})
