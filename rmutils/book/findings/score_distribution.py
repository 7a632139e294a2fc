"""What the chapter says of how scores are spread, and of gain over sparsity."""

from __future__ import annotations

import math

from rmutils.book.chapters.preliminaries import experiment as preliminaries
from rmutils.book.chapters.score_distribution import sparsity_and_gain as equal_designs
from rmutils.book.chapters.score_distribution.designs import design_stored, designs, points
from rmutils.book.chapters.score_distribution.sparser_versions import sparsity_and_gain
from rmutils.book.claims.effects import sparsity_effects
from rmutils.book.experiments.real_models import detection, real_models
from rmutils.book.findings.registry import SHOWN, UNDECIDED, Measured, declare
from rmutils.book.verdicts import ALPHA
from rmutils.core.errors import NotStored
from rmutils.heads import sparsity
from rmutils.heads.detection import DetectConfig, detect_stored, even_depths
from rmutils.paper import audit, load_published_summary
from rmutils.stats import Heterogeneity, Interval, heterogeneity, pearson, standard_error

RANKED, BINS, WINDOWS = "fig-ranked-scores", "fig-score-bins", "fig-windows"
DESIGNED, EQUAL = "fig-designed-gains", "fig-equal-designs"


@declare("scores-in-top-heads", unit="percent", place=RANKED, otherwise=(
    "In {model}, one head in twenty holds {value} % of all copy scores {ci}."))
def scores_in_top_heads(model: str) -> Measured:
    """Share of all copy scores that the highest 5 % of the heads of a real model have."""
    scores, artifact = detect_stored(model, detection(real_models()), compute="never")
    share = scores.statistic(sparsity.share_of_top)
    return Measured(Interval(*(100 * end for end in share)), [artifact.name],
                    len({*scores.clusters}), words={"model": model}, verdict=SHOWN)


@declare("score-statistics-that-match", unit="numbers", place=BINS, otherwise=(
    "{value} of the {printed} printed score statistics match the published scores."))
def statistics_that_match() -> Measured:
    """Printed statistics of scores that agree with the published runs, allowing for rounding."""
    checks = audit().query("check == 'published scores'")
    return Measured(Interval(float(checks["agrees"].sum()), math.nan, math.nan), (),
                    words={"printed": len(checks)})


@declare("published-sparsity", unit="", place=RANKED,
         otherwise="The published scores of {model} have a {statistic} of {value} {ci}.")
def published_sparsity(model: str, statistic: str) -> Measured:
    """A measure of sparsity of the published scores; intervals over runs."""
    rows = load_published_summary().set_index(["model", "statistic"])
    found = Interval(*rows.loc[(model, statistic), ["value", "low", "high"]].astype(float))
    return Measured(found, (), words={"model": model, "statistic": statistic}, verdict=SHOWN)


@declare("full-layers-share", unit="percent", place=WINDOWS, otherwise=(
    "For needles {side}, {model}'s full layers hold {value} % of all scores {ci}."))
def full_layers_share(
    side: str, model: str, lengths: tuple[int, ...], depths: int, window: int, every: int,
) -> Measured:
    """Share of all scores in the layers that see everything; shown if above an even spread."""
    grid = DetectConfig(lengths=lengths, depths=even_depths(depths))
    scores, artifact = detect_stored(model, grid, compute="never")
    table = preliminaries.summarize(scores, window=window, every=every, tau=0.0,
                                    answer=grid.max_new_tokens)
    rows = table[(table["side"] == side) & (table["statistic"] == "full_share")]
    if rows.empty:
        raise NotStored(f"{model} found no needle {side}.")
    share = 100 * rows[["value", "low", "high"]].iloc[0].astype(float)
    return Measured(Interval(*share), [artifact.name], words={"model": model, "side": side},
                    verdict=SHOWN if share["low"] > 100 / every else UNDECIDED)


@declare("gain-over-designed-sparsity", unit="r", place=DESIGNED, otherwise=(
    "Over the designed models, gain and sparsity correlate at r = {value} {ci}: {verdict}."))
def gain_over_designed_sparsity() -> Measured:
    """Correlation of the gain by RetMask with the Gini coefficient, as the claims judge it."""
    return Measured.of(sparsity_effects.gain_over_designed_sparsity("gini"), 1)


@declare("heads-and-designed-sparsity", unit="r", place=DESIGNED, otherwise=(
    "Over the designed models, sparsity and the number of heads correlate at r = {value} {ci}: "
    "{verdict}."))
def heads_and_designed_sparsity() -> Measured:
    """Correlation of the Gini coefficient with the number of heads."""
    table = points({name: design_stored(config, compute="never")
                    for name, config in designs().items()})
    return Measured(Interval(*pearson(table["heads"], table["sparsity"])[:3]), (), len(table))


@declare("gain-over-equal-sparsity", unit="r", place=EQUAL, otherwise=(
    "Over versions of one model, gain and sparsity correlate at r = {value} {ci}: {verdict}."))
def gain_over_equal_sparsity() -> Measured:
    """The same by Hoyer's sparseness over versions of one model, as the claims judge it."""
    return Measured.of(sparsity_effects.gain_over_sparsity_at_equal_size(equal_designs.PRIMARY), 1)


def _spread(found: Heterogeneity) -> Measured:
    return Measured(Interval(found.q, math.nan, math.nan), (), found.freedom + 1, found.p,
                    verdict=SHOWN if found.p < ALPHA else UNDECIDED)


@declare("designed-gains-differ", unit="Q", place=DESIGNED, otherwise=(
    "The gains of the designed models differ more than chance explains (Q = {value}): {verdict}."))
def designed_gains_differ() -> Measured:
    """Cochran's Q of the gains of the designed models."""
    table = points({name: design_stored(config, compute="never")
                    for name, config in designs().items()})
    return _spread(heterogeneity(table["gain"],
                                 standard_error(table["gain_low"], table["gain_high"])))


@declare("equal-gains-differ", unit="Q", place=EQUAL, otherwise=(
    "The gains of the versions differ more than chance explains (Q = {value}): {verdict}."))
def equal_gains_differ() -> Measured:
    """Cochran's Q of the gains of the versions of one model."""
    if (found := sparsity_and_gain()) is None:
        raise NotStored("No version of one model is stored. `rmutils run 05_score_distribution "
                        "-p compute_sparsity auto` makes them.")
    return _spread(equal_designs.answer(equal_designs.points(found)).spread)
