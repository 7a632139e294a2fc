"""What is said of pairs made live or stored, and of half-learned models (appendix F)."""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pandas as pd

from rmutils.book.chapters.data_and_training import engines
from rmutils.book.chapters.data_and_training import half_learned as half
from rmutils.book.chapters.data_and_training import half_learned_again as again
from rmutils.book.chapters.data_and_training.pair_statistics import (
    difference_on_same,
    names_difference,
    summarize,
)
from rmutils.book.experiments.planned_runs import BEFORE, RETMASK, seeds_said, trainings
from rmutils.book.findings import AGAINST, SHOWN, UNDECIDED, Measured, Verdict, declare, scaled
from rmutils.book.verdicts import Effect, quantity
from rmutils.core.errors import NotStored, require
from rmutils.core.experiment import load_plan
from rmutils.evaluation.answers import repetition_rate
from rmutils.stats import ANY, DIFFERENCE, Bounds, Interval, interval

PAIRS, HALF = "fig-pairs", "fig-half-learned"
SCALES = {"names_difference": 100}  # measures of pairs that are shown in percent


@declare("pairs-differ", unit="percent, nats or tokens", place=PAIRS, otherwise=(
    "Chosen and rejected answers of {model} differ in {measure} by {value} {ci}: {verdict}."))
def pairs_differ(measures: pd.DataFrame, measure: str, model: str) -> Measured:
    """Mean of a measure of chosen beside rejected answers, over pairs."""
    row = summarize(measures[[measure]]).iloc[0]
    return Measured.row(row, [], SCALES.get(measure, 1), clusters=int(row["pairs"]))


@declare("pairs-beyond", unit="percent, nats or tokens", place=PAIRS, otherwise=(
    "On the same instructions, RetMask's pairs of {model} have {value} {more|less} of {measure} "
    "{ci} than those of {control}: {verdict}."))
def pairs_beyond(measures: pd.DataFrame, others: Sequence[pd.DataFrame], measure: str, model: str,
                 control: str) -> Measured:
    """The same, minus that of other pairs on the same instructions; several draws of others."""
    if not others:
        raise NotStored(f"Pairs of {control} are not stored.")
    both = difference_on_same(measures[measure], [table[measure] for table in others])
    if both is None:
        raise NotStored(f"No two instructions have a pair of both RetMask and {control}.")
    return Measured(scaled(both[2], SCALES.get(measure, 1)), [], words={"control": control})


@declare("pairs-lose-names", unit="points", place=PAIRS, otherwise=(
    "In {model}, RetMask's rejected answers lose {value} points {more|fewer} names {ci} than those "
    "of {control}: {verdict}."))
def pairs_lose_names(model: str, control: str = "non-retrieval-mask") -> Measured:
    """Names that stored rejected answers lose: RetMask's minus a control's, on the same
    instructions."""
    runs = [trainings(model, strategy)[-1] for strategy in (RETMASK, control)]
    own, other = (names_difference(run.pairs) for run in runs)
    both = difference_on_same(own, [other])
    if both is None:
        raise NotStored(f"No two instructions have a pair of both RetMask and {control}.")
    return Measured(scaled(both[2]), [run.artifact.name for run in runs],
                    words={"model": model, "control": control})


@cache
def half_learned() -> half.HalfLearned:
    """Look up the runs on half-learned models; all that are planned have to be stored."""
    found = half.half_learned()
    if found is None or found.done < found.planned:
        require([half.HALF_LEARNED.command])
    return found


@cache
def _leads() -> pd.DataFrame:
    return half.compare_arms(half_learned().cases)


@declare("half-learned-needles", unit="points", place=HALF, otherwise=(
    "Half-learned {model} finds {value} points {more|fewer} needles {ci} after RetMask than "
    "after its control: {verdict}."))
def half_learned_needles(model: str) -> Measured:
    """Needles found after RetMask, minus after masking others of the same layers."""
    return Measured.row(_leads().set_index("model").loc[model], [half.HALF_LEARNED.name], 100,
                        clusters=half_learned().cases["needle"].nunique(), p="p_holm")


@declare("half-learned-verdict", unit="models", place=HALF, otherwise=(
    "Over {value} half-learned models, the plan's verdict on RetMask's lead is: {told}."))
def half_learned_verdict() -> Measured:
    """The plan's verdict over all models; its value is how many there are."""
    table = _leads()
    told = half.verdict(table, load_plan("half_learned"))
    verdicts: dict[str, Verdict] = {"shown": SHOWN, "undecided": UNDECIDED}
    return Measured(Interval(len(table), math.nan, math.nan), [half.HALF_LEARNED.name],
                    verdict=verdicts.get(told, AGAINST), words={"told": told})


@cache
def half_learned_again() -> pd.DataFrame:
    """Return the cases of the runs that were asked 200 needles; all planned have to be stored."""
    runs = again.HALF_LEARNED_AGAIN.collect()
    require([*runs.missing.values()][:1])
    return runs.table("cases")


@declare("half-learned-again", unit="points", place=HALF, otherwise=(
    "Of 200 needles, half-learned {model} finds {value} points {more|less} {ci} after RetMask "
    "than after its control: {verdict}."))
def half_learned_again_lead(model: str = again.ALL) -> Measured:
    """Needles found after RetMask, minus after the control: of one model, or the mean of three."""
    return _again(model, again.leads(half_learned_again())[model])


@declare("half-learned-gain", unit="points", place=HALF, otherwise=(
    "Of 200 needles, half-learned {model} finds {value} points {more|less} {ci} after {arm} than "
    "before: {verdict}."))
def half_learned_gain(model: str = again.ALL, arm: str = RETMASK) -> Measured:
    """Needles found after a training, minus before it."""
    return _again(model, again.leads(half_learned_again(), arm, BEFORE)[model], arm=arm)


def _again(model: str, lead: again.Lead, **words: str) -> Measured:
    return Measured(lead.interval, [again.HALF_LEARNED_AGAIN.name], lead.needles, lead.p,
                    words={"model": model, **words})


@declare("half-learned-again-verdict", unit="points", place=HALF, otherwise=(
    "By the plan, a mean within {value} points is no lead; it counts this one as {told}."))
def half_learned_again_verdict() -> Measured:
    """The plan's verdict on the mean of the models; its value is the smallest effect."""
    plan = load_plan("half_learned_again")
    told = again.verdict(again.leads(half_learned_again())[again.ALL], plan)
    verdicts: dict[str, Verdict] = {"shown": SHOWN, "excluded": AGAINST}
    seen = 100 * plan.content["smallest_effect"]["share_of_needles"]
    return Measured(Interval(seen, math.nan, math.nan), [again.HALF_LEARNED_AGAIN.name],
                    verdict=verdicts.get(told, UNDECIDED), words={"told": told})


@declare("half-learned-again-heads", unit="points", place=HALF, otherwise=(
    "In needles of the 200 that both find, the masked heads of half-learned {model} score "
    "{value} points {more|less} {ci} after RetMask than after its control: {verdict}."))
def half_learned_again_heads(model: str) -> Measured:
    """Score of the masked heads after RetMask, minus after the control."""
    table = half.compare_arms(half_learned_again(), measure="retrieval").set_index("model")
    return Measured.row(table.loc[model], [again.HALF_LEARNED_AGAIN.name], 100)


@cache
def _engines() -> dict[str, dict[str, Any]]:
    return engines.engines()


@declare("engines-same", unit="answers", place="engines", otherwise=(
    "Of {asked} greedy answers, {value} are the same by vLLM and by transformers."))
def engines_same() -> Measured:
    """Greedy answers whose tokens are all the same, of all models, whole and masked."""
    found = _engines().values()
    return Measured.count(sum(one[engines.WHOLE] + one[engines.MASKED] for one in found),
                          [engines.ENGINES.name], asked=engines_asked())


def engines_asked() -> int:
    """How many greedy answers are compared."""
    return sum(2 * one["instructions"] for one in _engines().values())


@declare("engines-time", unit="percent", place="engines", otherwise=(
    "For answers of {model}, vLLM takes {value} % of the processor time of transformers."))
def engines_time(model: str) -> Measured:
    """Processor seconds per answer of vLLM, of those of transformers."""
    one = _engines()[model]
    return Measured.count(100 * one[engines.THEIRS] / one[engines.OURS], [engines.ENGINES.name])


@declare("held-out-margin", unit="margin", place="fig-curves", otherwise=(
    "On held-out pairs of {strategy}, the margin after the training is {value} {ci}: {verdict}."))
def held_out_margin(tests: pd.DataFrame, strategy: str) -> Measured:
    """Mean margin of pairs that were not trained on; before the training it is 0."""
    row = summarize(tests[["margin"]]).iloc[0]
    return Measured.row(row, [], clusters=int(row["pairs"]), strategy=strategy)


@declare("half-learned-lead", unit="points", place="data-and-training", otherwise=(
    "In half-learned {model} the masked heads score {value} points {more|less} {ci} after "
    "RetMask than after its control: {verdict}."))
@quantity("on half-learned {model}, the scores of the masked heads after RetMask minus those after "
          "masking the same number of other heads of these layers are {effect} "
          "points", scale=100)
def half_learned_change_beyond_same_layers(model: str) -> Effect:
    """Score of the retrieval heads of a half-learned model after RetMask, minus that after
    masking others of the same layers, over the cases that both trained models solve."""
    cases = half_learned().cases
    cases = cases[cases["model"] == model]
    row, = half.compare_arms(cases, measure="retrieval").itertuples()
    return Effect(row.effect, row.low, row.high, "score", (half.HALF_LEARNED.name,),
                  cases["needle"].nunique(), f"interval over needles and {row.seeds} seeds")


@quantity("rejected answers of {model} are {effect} tokens longer than chosen ones")
def rejected_longer(model: str) -> Effect:
    """Tokens of the rejected answer minus those of the chosen one, mean over pairs."""
    return _rejected_beyond_chosen(
        model, lambda pairs, side: pairs[f"{side}_tokens"].astype(float), "tokens", ANY)


@quantity("rejected answers of {model} repeat {effect} more of their spans than chosen ones")
def rejected_repeats(model: str) -> Effect:
    """Repetition rate of the rejected answer minus that of the chosen one, mean over pairs."""
    return _rejected_beyond_chosen(
        model, lambda pairs, side: pairs[side].map(repetition_rate), "share of spans", DIFFERENCE)


def _rejected_beyond_chosen(model: str, of: Callable[[pd.DataFrame, str], pd.Series], unit: str,
                            bounds: Bounds) -> Effect:
    runs = trainings(model, RETMASK)
    pairs = pd.concat([run.pairs for run in runs], ignore_index=True)
    values = of(pairs, "rejected") - of(pairs, "chosen")
    seeds = seeds_said(run.artifact.manifest["config"]["seed"] for run in runs)
    return Effect.of(interval(values, pairs["id"], bounds=bounds), unit,
                     [run.artifact.name for run in runs], pairs["id"].nunique(),
                     f"{len(pairs)} pairs of {seeds}")
