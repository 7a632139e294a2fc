"""What the front page says that no chapter says: pooled leads, counts of heads and of runs."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rmutils.book.chapters.essay import experiment
from rmutils.book.claims import pooled_leads
from rmutils.book.claims.effects import head_effects
from rmutils.book.findings.registry import Measured, declare
from rmutils.paper import audit, load_published_maps
from rmutils.stats import Interval

HEADS, NUMBERS = "fig-few-heads", "fig-heads-that-hold"
ANSWERS, RUNS = "fig-beside-controls", "fig-published-runs"


def _exact(value: float) -> Interval:
    """Return a count: nothing was drawn."""
    return Interval(float(value), math.nan, math.nan)


@declare("heads-that-halve", unit="heads", place=NUMBERS, otherwise=(
    "{model} finds at most half of its needles without its {value} highest heads."))
def heads_that_halve(model: str) -> Measured:
    """Fewest highest heads, of the numbers tried, without which at most half is found."""
    used = [artifact.name for artifact in experiment.real_masking().artifacts]
    return Measured(_exact(experiment.needles_by_count()[1][model]), used, words={"model": model})


@declare("heads-in-all", unit="heads", place=HEADS,
         otherwise="{model} has {value} attention heads.")
def heads_in_all(model: str) -> Measured:
    """Attention heads of a model."""
    return Measured(_exact(experiment.heads_in_all()[model]), (), words={"model": model})


@declare("pooled-lead", unit="points", place=ANSWERS, otherwise=(
    "Over {models} models, RetMask scores {value} points more {ci} than {against}: {verdict}."))
def pooled(against: str = pooled_leads.OTHER_HEADS) -> Measured:
    """Score on long texts after RetMask minus that of a comparison, pooled over the models."""
    found = pooled_leads.pooled_lead(against)
    return Measured(found.interval, (), found.studies,
                    words={"models": found.studies, "against": against})


@declare("paper-lead", unit="points", place=ANSWERS, otherwise=(
    "In the paper's Table 1, RetMask scores {value} points more than {against}."))
def printed(against: str = pooled_leads.OTHER_HEADS) -> Measured:
    """The same for the paper's Llama-3.1, a mean over its lengths."""
    return Measured(_exact(pooled_leads.paper_lead(against)), (), words={"against": against})


@declare("half-learned-lead", unit="points", place="data-and-training", otherwise=(
    "In half-learned {model} the masked heads score {value} points more {ci} after RetMask than "
    "after its control: {verdict}."))
def half_learned_lead(model: str) -> Measured:
    """Score of the masked heads of a half-learned model, minus that after masking others."""
    return Measured.of(head_effects.half_learned_change_beyond_same_layers(model), 100, model=model)


@declare("published-runs", unit="runs", place=RUNS, otherwise="There are {value} {what}.")
def published_runs(what: str = "runs") -> Measured:
    """Published runs, those that differ, and the heads that pass the threshold by them.

    Parameters
    ----------
    what : {"runs", "different runs", "heads", "heads that stay"}
    """
    maps = load_published_maps()
    every = experiment.published_heads()
    counts: Mapping[str, int] = {
        "runs": len(maps), "different runs": int(maps.groupby("model")["map"].nunique().sum()),
        "heads": len(every),
        "heads that stay": len(every & experiment.published_heads(distinct=True))}
    return Measured(_exact(counts[what]), (), words={"what": what})


@declare("printed-comparisons", unit="pairs", place="errata", otherwise=(
    "Of the printed numbers, {value} pairs {what}."))
def printed_comparisons(what: str = "should agree") -> Measured:
    """Pairs of printed numbers that should agree, and those that do not.

    Parameters
    ----------
    what : {"should agree", "disagree"}
    """
    found = audit()
    counts = {"should agree": len(found), "disagree": int((~found["agrees"]).sum())}
    return Measured(_exact(counts[what]), (), words={"what": what})
