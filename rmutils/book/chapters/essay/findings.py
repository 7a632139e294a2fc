"""What the front page shows of other chapters' results, and what no chapter says."""

from collections.abc import Mapping
from functools import cache, partial
from typing import Literal

import pandas as pd

from rmutils.book.chapters.main_tables import findings as pooled_leads
from rmutils.book.experiments import needles_left
from rmutils.book.experiments.masked_needles import MATCHED as SAME_LAYERS
from rmutils.book.experiments.masked_needles import TOP, WHOLE
from rmutils.book.findings import Measured, declare
from rmutils.core.experiment import load_plan
from rmutils.heads.scores import Head
from rmutils.paper import audit, load_published_maps
from rmutils.paper.head_checks import HeadNumbers
from rmutils.paper.tables import PAPER, load_published_scores
from rmutils.stats import smallest_effect

SMALL = "smollm2-135m"


real_masking = partial(needles_left.stored, "masking")
"""What the four real models find without some of their heads."""


@cache
def _answers() -> pd.DataFrame:
    """Return the answers of the four real models at the plan's length."""
    return needles_left.by_copy(real_masking().answers, load_plan("real_models"))


@cache
def heads_in_all() -> dict[str, int]:
    """Return how many heads each of the four models has."""
    return {model: scores.mean.size
            for model, scores in needles_left.stored("detection").results.items()}


def few_heads(count: int) -> tuple[tuple[int, int], list[Head], pd.DataFrame]:
    """Return SmolLM2's shape, its top heads, and the needles found with and without them."""
    scores = needles_left.stored("detection").results[SMALL]
    shares = needles_left.shares_found(_answers())
    kept = (shares["model"] == SMALL) & shares["count"].isin([0, count]) & shares["policy"].isin(
        [WHOLE, TOP, SAME_LAYERS])
    return scores.mean.shape, scores.select(top_k=count), shares[kept]


def needles_by_count() -> tuple[pd.DataFrame, dict[str, float]]:
    """Return the needles that each model finds by the number of heads that are switched off, and
    the number that halves them."""
    halves = needles_left.halving(_answers(), heads_in_all())
    return needles_left.shares_found(_answers()), dict(zip(halves["model"], halves["count"],
                                                           strict=True))


def published_heads(model: str, distinct: bool = False) -> set[tuple[int, int]]:
    """Return the heads that reach the paper's threshold in the published scores."""
    scores, tau = load_published_scores(distinct=distinct), float(HeadNumbers(PAPER).tau(model))
    own = scores[(scores["model"] == model) & (scores["mean"].astype(float) >= tau)]
    return {*zip(own["layer"], own["head"], strict=True)}


HEADS, NUMBERS = "fig-few-heads", "fig-heads-that-hold"
ANSWERS, RUNS = "fig-beside-controls", "fig-published-runs"


@declare("heads-that-halve", unit="heads", place=NUMBERS, otherwise=(
    "{model} finds at most half of its needles without its {value} highest heads."))
def heads_that_halve(model: str) -> Measured:
    """Fewest highest heads, of the numbers tried, without which at most half is found."""
    return Measured.count(needles_by_count()[1][model], real_masking().artifacts)


@declare("heads-in-all", unit="heads", place=HEADS,
         otherwise="{model} has {value} attention heads.")
def count_heads(model: str) -> Measured:
    """Attention heads of a model."""
    return Measured.count(heads_in_all()[model])


@declare("pooled-lead", unit="points", place=ANSWERS, otherwise=(
    "Over {models} models, RetMask scores {value} points {more|less} {ci} than {against}: "
    "{verdict}."))
def pooled(against: str = pooled_leads.OTHER_HEADS) -> Measured:
    """Score on long texts after RetMask minus that of a comparison, pooled over the models."""
    found = pooled_leads.pooled_lead(against)
    return Measured(found.interval, (), found.studies,
                    words={"models": found.studies, "against": against})


@declare("pooled-lead-detectable", unit="points", place=ANSWERS, otherwise=(
    "Over the models, a true lead over {against} of {value} points would likely have been seen."))
def detectable(against: str = pooled_leads.OTHER_HEADS) -> Measured:
    """Smallest pooled lead that four of five repetitions would have shown."""
    found = pooled_leads.pooled_lead(against)
    return Measured.count(smallest_effect(found.low, found.high), against=against)


@declare("paper-lead", unit="points", place=ANSWERS, otherwise=(
    "In the paper's Table 1, RetMask scores {value} points {more|less} than {against}."))
def printed(against: str = pooled_leads.OTHER_HEADS) -> Measured:
    """The same for the paper's Llama-3.1, a mean over its lengths."""
    return Measured.count(pooled_leads.paper_lead(against), against=against)


@declare("published-runs", unit="runs", place=RUNS, otherwise="There are {value} {what}.")
def published_runs(what: Literal["runs", "different runs", "heads", "heads that stay"] = "runs",
                   model: str = pooled_leads.PAPERS_MODEL) -> Measured:
    """Published runs, those that differ, and the heads that pass the threshold by them."""
    maps = load_published_maps()
    every = published_heads(model)
    counts: Mapping[str, int] = {
        "runs": len(maps), "different runs": int(maps.groupby("model")["map"].nunique().sum()),
        "heads": len(every),
        "heads that stay": len(every & published_heads(model, distinct=True))}
    return Measured.count(counts[what])


@declare("printed-comparisons", unit="pairs", place="errata", otherwise=(
    "Of the printed numbers, {value} pairs {what}."))
def printed_comparisons(what: Literal["should agree", "disagree"] = "should agree") -> Measured:
    """Pairs of printed numbers that should agree, and those that do not."""
    agrees = audit()["agrees"]
    return Measured.count({"should agree": len(agrees), "disagree": (~agrees).sum()}[what])
