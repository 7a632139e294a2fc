"""How scores are spread over the heads, and gain over sparsity (section 5.2)."""

import math
from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np
import pandas as pd

from rmutils import stats
from rmutils.book.chapters.main_tables.task_effects import gain
from rmutils.book.chapters.masking_sweep.experiment import scored
from rmutils.book.chapters.masking_sweep.findings import answers_lost_at_tau, detection_of
from rmutils.book.chapters.preliminaries import experiment as preliminaries
from rmutils.book.chapters.score_distribution import sparser_versions as equal_designs
from rmutils.book.chapters.score_distribution.designs import design_stored, designs, points
from rmutils.book.chapters.score_distribution.sparser_versions import points as gains_by_design
from rmutils.book.chapters.score_distribution.sparser_versions import sparsity_and_gain
from rmutils.book.experiments.planned_runs import RETMASK
from rmutils.book.experiments.real_models import detection
from rmutils.book.experiments.sweep_questions import HAYSTACK
from rmutils.book.findings import SHOWN, UNDECIDED, Measured, declare, scaled
from rmutils.book.verdicts import ALPHA, MODELS, CannotShow, Effect, quantity
from rmutils.core.errors import NotStored, require
from rmutils.heads import sparsity
from rmutils.heads.detection import DetectConfig, detect_stored, even_depths
from rmutils.heads.scores import HeadScores
from rmutils.heads.sparsity import gini, recall_of_detections, share_above
from rmutils.paper import audit, load_published_summary, tables
from rmutils.paper.head_checks import HeadNumbers

NEEDLES = 3  # as many as the detection script that section 4.1 adopts has
TENTH = 0.1


def _needles(scores: HeadScores) -> int:
    return scores.cases.loc[scores.cases["success"].astype(bool), "needle"].nunique()


@quantity("of the heads of {model}, {effect} % retrieve", scale=100)
def share_of_retrieval_heads(model: str) -> Effect:
    """Share of heads at or above the model's threshold."""
    scores, artifact, tau = detection_of(model)
    share = scores.statistic(partial(share_above, tau=tau))
    return Effect.of(share, "share of heads", [artifact], _needles(scores))


@quantity("the highest tenth of the heads of {model} holds {effect} % of all retrieval scores",
          scale=100)
def scores_held_by_top_tenth(model: str) -> Effect:
    """Share of all retrieval scores, added up, that the highest tenth of the heads hold."""
    scores, artifact, _ = detection_of(model)
    return Effect.of(scores.statistic(_held_by_top_tenth), "share of scores", [artifact],
                     _needles(scores))


def _held_by_top_tenth(means: np.ndarray) -> np.ndarray:
    ranked = -np.sort(-means.reshape(len(means), -1), axis=1)
    return ranked[:, :round(TENTH * ranked.shape[1])].sum(1) / ranked.sum(1)


@quantity("three needles find on average {effect} % of the retrieval heads of {model}", scale=100)
def retrieval_heads_from_few_needles(model: str) -> Effect:
    """Share of the retrieval heads that a detection with three of the needles finds, too, by
    the same threshold; on average over all choices of three, with an interval over needles."""
    scores, artifact, tau = detection_of(model)
    found, choices = recall_of_detections(scores, NEEDLES, tau=tau)
    return Effect.of(found, "share of heads", [artifact], _needles(scores),
                     f"over all {len(choices):,} choices; the worst finds {choices.min():.0%}")


@quantity("in the authors' files, {effect} % of the heads of {model} reach the threshold",
          scale=100)
def published_share_of_heads(model: str) -> Effect:
    """Share of heads at or above the paper's threshold in the authors' scores, with an interval
    over their runs, of which each counts once however often it was copied."""
    statistic = f"heads_at_least_{float(HeadNumbers(tables.PAPER).tau(model)):g}"
    once, all_runs = (_published_row(model, statistic, distinct) for distinct in (True, False))
    return Effect(
        *(once[column] / once["heads"] for column in ("value", "low", "high")), "share of heads",
        (), int(once["runs"]), _copies(model, all_runs["value"] / all_runs["heads"]))


def _published_row(model: str, statistic: str, distinct: bool) -> pd.Series:
    rows = tables.load_published_summary(distinct=distinct)
    return rows[(rows["model"] == model) & (rows["statistic"] == statistic)].iloc[0]


@quantity("in the authors' files, the highest tenth of the heads of {model} holds {effect} % of "
          "all retrieval scores", scale=100)
def published_scores_held_by_top_tenth(model: str) -> Effect:
    """Share of all scores that the highest tenth of the heads holds in the authors' files, each
    distinct run counted once: an exact number."""
    once, all_runs = (
        float(_held_by_top_tenth(rows.loc[rows["model"] == model, "mean"].to_numpy()[None])[0])
        for rows in (tables.load_published_scores(distinct=distinct) for distinct in (True, False)))
    return Effect(once, once, once, "share of scores", (), None, _copies(model, all_runs))


def _copies(model: str, with_copies: float) -> str:
    """Say what the same number is if copies of runs count."""
    runs = tables.load_published_maps().query("model == @model")["map"]
    return (f"each distinct run once; {len(runs) - runs.nunique()} of the {len(runs)} published "
            f"runs equal another one, and with these it is {with_copies:.1%}")


@quantity("over {models}, gain and sparsity correlate at r = {effect}")
def gain_over_sparsity(*models: str) -> Effect:
    """Correlation (Pearson's) of the gain by RetMask with the Gini coefficient of the retrieval
    scores, over models; Fisher's interval."""
    return _over_sparsity(models, gain)


@quantity("over the designed models, gain and sparsity correlate at r = {effect}")
def gain_over_designed_sparsity(statistic: str) -> Effect:
    """Correlation (Pearson's) of the gain by RetMask with a measure of sparsity, over the
    models that were built to differ in it; Fisher's interval."""
    found = {name: design_stored(config, compute="never") for name, config in designs().items()}
    table = points(found, statistic)
    return _correlation(table["sparsity"].to_numpy(), table["gain"].to_numpy(),
                        stats.standard_error(table["gain_low"], table["gain_high"]),
                        [design.artifact.name for design in found.values()])


@quantity("over versions of one model, gain and sparsity correlate at r = {effect}")
def gain_over_sparsity_at_equal_size(statistic: str) -> Effect:
    """Correlation (Pearson's) of the needles gained by RetMask with a measure of sparsity, over
    versions of one model that differ in it; Fisher's interval."""
    found = sparsity_and_gain()
    if found is None or found.done[RETMASK] < found.planned[RETMASK]:
        require([equal_designs.SPARSITY_AND_GAIN.command])
    table = gains_by_design(found, statistic=statistic)
    if len(table) < MODELS:
        raise CannotShow(f"a correlation over {len(table)} designs; it takes {MODELS} or more",
                         CORRELATION, [artifact.name for artifact in found.artifacts])
    return _correlation(table["sparsity"].to_numpy(), table["gain"].to_numpy(),
                        table["error"].to_numpy(), [one.name for one in found.artifacts])


@quantity("over {models}, needles lost and sparsity correlate at r = {effect}")
def loss_over_sparsity(*models: str) -> Effect:
    """Correlation (Pearson's) of the needles lost without the retrieval heads with the Gini
    coefficient of the retrieval scores, over models; Fisher's interval."""
    return _over_sparsity(models, lambda model: answers_lost_at_tau(model, HAYSTACK))


def _over_sparsity(models: Sequence[str], measure: Callable[[str], Effect]) -> Effect:
    if len(models) < MODELS:
        raise CannotShow(f"a correlation over {len(models)} models; it takes {MODELS} or more",
                         CORRELATION, ())
    detections = [scored(model, compute="never") for model in models]
    effects = [measure(model) for model in models]
    return _correlation(np.array([gini(scores.mean) for scores, _ in detections]),
                        np.array([effect.value for effect in effects]),
                        [stats.standard_error(effect.low, effect.high) for effect in effects],
                        [*(name for effect in effects for name in effect.artifacts),
                         *(artifact.name for _, artifact in detections)])


CORRELATION = "correlation"


def _correlation(sparsity: np.ndarray, values: np.ndarray, errors: Sequence[float],
                 names: Sequence[str]) -> Effect:
    """Blind where the values themselves do not differ more than chance explains."""
    q, freedom, p = stats.heterogeneity(values, errors)
    alike = (f"the {len(values)} models do not differ more than chance explains (Q = {q:.1f} with "
             f"{freedom} degrees of freedom)" if p > ALPHA else "")
    return Effect.of(stats.correlation(sparsity, values, errors), CORRELATION, names, len(values),
                     f"{len(values)} models", alike)


RANKED, BINS, WINDOWS = "fig-ranked-scores", "fig-score-bins", "fig-windows"
DESIGNED, EQUAL = "fig-designed-gains", "fig-equal-designs"


@declare("scores-in-top-heads", unit="percent", place=RANKED, otherwise=(
    "In {model}, one head in twenty holds {value} % of all copy scores {ci}."))
def scores_in_top_heads(model: str) -> Measured:
    """Share of all copy scores that the highest 5 % of the heads of a real model have."""
    scores, artifact = detect_stored(model, detection(), compute="never")
    return Measured(scaled(scores.statistic(sparsity.share_of_top)), [artifact],
                    len({*scores.clusters}), verdict=SHOWN)


@declare("score-statistics-that-match", unit="numbers", place=BINS, otherwise=(
    "{value} of the {printed} printed score statistics match the published scores."))
def statistics_that_match() -> Measured:
    """Printed statistics of scores that agree with the published runs, allowing for rounding."""
    checks = audit().query("check == 'published scores'")
    return Measured.count(checks["agrees"].sum(), printed=len(checks))


@declare("published-sparsity", unit="", place=RANKED,
         otherwise="The published scores of {model} have a {statistic} of {value} {ci}.")
def published_sparsity(model: str, statistic: str) -> Measured:
    """A measure of sparsity of the published scores, shares in percent; intervals over runs."""
    rows = load_published_summary().set_index(["model", "statistic"])
    return Measured.row(rows.loc[(model, statistic)], (), 100 if "share" in statistic else 1,
                        verdict=SHOWN)


@declare("full-layers-share", unit="percent", place=WINDOWS, otherwise=(
    "For needles {side}, {model}'s full layers hold {value} % of all scores {ci}."))
def full_layers_share(side: str, model: str, lengths: tuple[int, ...], depths: int, window: int,
                      every: int) -> Measured:
    """Share of all scores in the layers that see everything; shown if above an even spread."""
    grid = DetectConfig(lengths=lengths, depths=even_depths(depths))
    scores, artifact = detect_stored(model, grid, compute="never")
    table = preliminaries.summarize(scores, window=window, every=every, tau=0.0,
                                    answer=grid.max_new_tokens)
    rows = table[(table["side"] == side) & (table["statistic"] == "full_share")]
    if rows.empty:
        raise NotStored(f"{model} found no needle {side}.")
    verdict = SHOWN if rows["low"].iloc[0] > 1 / every else UNDECIDED
    return Measured.row(rows.iloc[0], [artifact], 100, verdict=verdict)


@declare("gain-over-designed-sparsity", unit="r", place=DESIGNED, otherwise=(
    "Over the designed models, gain and sparsity correlate at r = {value} {ci}: {verdict}."))
def designed_correlation() -> Measured:
    """Correlation of the gain by RetMask with the Gini coefficient, as the claims judge it."""
    return Measured.of(gain_over_designed_sparsity("gini"), 1)


@cache
def _designed() -> pd.DataFrame:
    return points({name: design_stored(config, compute="never")
                   for name, config in designs().items()})


@declare("heads-and-designed-sparsity", unit="r", place=DESIGNED, otherwise=(
    "Over the designed models, sparsity and the number of heads correlate at r = {value} {ci}: "
    "{verdict}."))
def heads_and_designed_sparsity() -> Measured:
    """Correlation of the Gini coefficient with the number of heads."""
    table = _designed()
    return Measured(stats.Interval(*stats.pearson(table["heads"], table["sparsity"])[:3]), (),
                    len(table))


@declare("gain-over-equal-sparsity", unit="r", place=EQUAL, otherwise=(
    "Over versions of one model, gain and sparsity correlate at r = {value} {ci}: {verdict}."))
def equal_correlation() -> Measured:
    """The same by Hoyer's sparseness over versions of one model, as the claims judge it."""
    return Measured.of(gain_over_sparsity_at_equal_size(equal_designs.PRIMARY), 1)


def _spread(found: stats.Heterogeneity) -> Measured:
    return Measured(stats.Interval(found.q, math.nan, math.nan), (), found.freedom + 1, found.p,
                    verdict=SHOWN if found.p < ALPHA else UNDECIDED)


@declare("designed-gains-differ", unit="Q", place=DESIGNED, otherwise=(
    "That the gains of the designed models differ more than chance explains (Q = {value}) is "
    "{verdict}."))
def designed_gains_differ() -> Measured:
    """Cochran's Q of the gains of the designed models."""
    table = _designed()
    return _spread(stats.heterogeneity(table["gain"],
                                 stats.standard_error(table["gain_low"], table["gain_high"])))


@declare("equal-gains-differ", unit="Q", place=EQUAL, otherwise=(
    "That the gains of the versions differ more than chance explains (Q = {value}) is {verdict}."))
def equal_gains_differ() -> Measured:
    """Cochran's Q of the gains of the versions of one model."""
    if (found := sparsity_and_gain()) is None:
        require([equal_designs.SPARSITY_AND_GAIN.command])
    return _spread(equal_designs.answer(equal_designs.points(found)).spread)
