"""What the first chapter says: how many heads copy, and whether they stay the same."""

from functools import cache, partial

import pandas as pd

from rmutils.book.chapters.preliminaries import experiment
from rmutils.book.experiments.real_models import detection, long_detection, real_models
from rmutils.book.findings import SHOWN, Measured, declare, scaled
from rmutils.core.experiment import load_plan
from rmutils.core.results import Artifact
from rmutils.heads import HeadScores
from rmutils.heads.detection import detect_stored
from rmutils.heads.scores import Head
from rmutils.heads.sparsity import share_above, share_at_zero, top_overlap
from rmutils.models.known_models import tau_of
from rmutils.stats import DIFFERENCE, Interval, interval

MAP, AGREEMENT, REAL = "fig-head-map", "fig-grid-agreement", "fig-real-maps"


@declare("heads-that-reach", unit="heads", place=MAP, otherwise=(
    "{value} heads of {model} reach τ = {tau} {ci}."))
def heads_that_reach(scores: HeadScores, tau: float, artifact: str) -> Measured:
    """Heads of a detection with at least this score."""
    found = scores.statistic(lambda maps: (maps >= tau).sum((1, 2)), bounds=(0, scores.mean.size))
    return Measured(Interval(*found), [artifact], len({*scores.clusters}), verdict=SHOWN,
                    words={"model": scores.model, "tau": f"{tau:g}"})


@declare("heads-that-never-copy", unit="percent", place=MAP, otherwise=(
    "{value} % of the heads of {model} never copy a token of an answer {ci}."))
def heads_that_never_copy(scores: HeadScores, artifact: str) -> Measured:
    """Share of heads with a score of zero."""
    return Measured(scaled(scores.statistic(share_at_zero)), [artifact],
                    len({*scores.clusters}), verdict=SHOWN, words={"model": scores.model})


@declare("head-copies", unit="percent", place=MAP, otherwise=(
    "Head {head} of {model} copies {value} % of an answer {ci}."))
def head_copies(scores: HeadScores, head: Head, artifact: str) -> Measured:
    """The score of one head, in percent of the needle."""
    return Measured(scaled((scores.mean[head], *scores.interval()[head])), [artifact],
                    len({*scores.clusters}), verdict=SHOWN,
                    words={"model": scores.model, "head": f"{head[0]}-{head[1]}"})


@declare("top-heads-found-again", unit="heads", place=AGREEMENT, otherwise=(
    "{value} of the top {top} heads of one grid are among those of the other {ci}."))
def top_heads_found_again(one: HeadScores, other: HeadScores, top: int, artifact: str) -> Measured:
    """How many of the highest heads two grids share."""
    return Measured(Interval(*top_overlap(one, other, top)), [artifact], verdict=SHOWN)


def at_length(scores: HeadScores, length: int) -> HeadScores:
    """Return the part of a detection at one prompt length."""
    return scores.where((scores.cases["length"] == length).to_numpy())


@declare("leader-falls-with-length", unit="points", place=MAP, otherwise=(
    "Head {head} of {model} copies {value} points less of an answer {ci} at {long} tokens than at "
    "{short}: {verdict}."))
def leader_falls_with_length(scores: HeadScores, artifact: str) -> Measured:
    """Score of the highest head at the shortest prompts minus at the longest."""
    best, cases = scores.ranking()[0], scores.cases
    found = cases.loc[cases["success"], "length"]
    ends = found.min(), found.max()
    by_needle = [pd.Series(part.runs[:, *best]).groupby(part.clusters).mean()
                 for part in (at_length(scores, n) for n in ends)]
    fall = (by_needle[0] - by_needle[1]).dropna()
    return Measured(scaled(interval(fall, bounds=DIFFERENCE)), [artifact], len(fall),
                    words={"model": scores.model, "head": f"{best[0]}-{best[1]}",
                           "short": f"{ends[0]:,}", "long": f"{ends[1]:,}"})


@cache
def depths_compared(model: str) -> tuple[pd.DataFrame, Artifact]:
    """Compare real depths with those of the published runs, as the plan says."""
    scores, artifact = detect_stored(model, experiment.planned_grid(load_plan("collapsed_depths"),
                                                                    model),
                                     compute="never")
    return experiment.compare_depths(scores, tau_of(model)).set_index("quantity"), artifact


@declare("heads-lost-at-ends", unit="points", place="preliminaries", otherwise=(
    "With needles at the start and the end alone, a detection finds {value} points fewer of the "
    "top heads of {model} {ci} than with as few at random places: {verdict}."))
def heads_lost_at_ends(model: str) -> Measured:
    """Top heads found at random places, minus those found at start and end."""
    table, artifact = depths_compared(model)
    row = table.loc[experiment.OVERLAP]
    return Measured(scaled((row[experiment.RANDOM] - row[experiment.COLLAPSED], -row["high"],
                            -row["low"])), [artifact])


@declare("heads-that-copy", unit="percent", place=REAL, otherwise=(
    "{value} % of the heads of {model} reach the threshold {ci}."))
def heads_that_copy(model: str) -> Measured:
    """Share of heads of a real model that reach the plan's τ."""
    scores, artifact = detect_stored(model, detection(), compute="never")
    found = scores.statistic(partial(share_above, tau=real_models().content["tau"]))
    return Measured(scaled(found), [artifact], len({*scores.clusters}), verdict=SHOWN)


@declare("top-heads-at-longer", unit="heads", place=REAL, otherwise=(
    "At {length} tokens, {value} of the top {top} heads of {model} are those of the shorter "
    "prompts {ci}."))
def top_heads_at_longer(model: str, top: int = 10) -> Measured:
    """Top heads of a real model in prompts of 512 to 2,048 tokens that it has in longer ones."""
    config = long_detection(model)
    shorter, long = (detect_stored(model, one, compute="never") for one in (detection(), config))
    return Measured(Interval(*top_overlap(shorter[0], long[0], top)), [shorter[1], long[1]],
                    len({*long[0].clusters}), verdict=SHOWN,
                    words={"length": f"{config.lengths[0]:,}"})
