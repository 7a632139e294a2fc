"""Correlations with the sparsity of the retrieval scores (section 5.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rmutils.book.chapters.masking_sweep.experiment import scored
from rmutils.book.chapters.score_distribution.designs import design_stored, designs, points
from rmutils.book.chapters.score_distribution.sparser_versions import sparsity_and_gain
from rmutils.book.chapters.score_distribution.sparsity_and_gain import points as gains_by_design
from rmutils.book.claims.effects.masking_effects import answers_lost_at_tau
from rmutils.book.claims.effects.task_effects import gain
from rmutils.book.experiments.planned_runs import RETMASK
from rmutils.book.experiments.sweep_questions import HAYSTACK
from rmutils.book.verdicts import ALPHA, MODELS, CannotShow, Effect, quantity
from rmutils.core.errors import NotStored
from rmutils.heads.sparsity import gini
from rmutils.stats import correlation, heterogeneity, standard_error


@quantity("over {models}, gain and sparsity correlate at r = {effect}")
def gain_over_sparsity(*models: str) -> Effect:
    """Correlation (Pearson's) of the gain by RetMask with the Gini coefficient of the retrieval
    scores, over models; Fisher's interval."""
    return _over_sparsity(models, gain)


@quantity("over the designed models, gain and sparsity correlate at r = {effect}")
def gain_over_designed_sparsity(statistic: str) -> Effect:
    """Correlation (Pearson's) of the gain by RetMask with a measure of sparsity,
    over the models that were built to differ in it; Fisher's interval."""
    found = {name: design_stored(config, compute="never") for name, config in designs().items()}
    table = points(found, statistic)
    return _correlation(table["sparsity"].to_numpy(), table["gain"].to_numpy(),
                        standard_error(table["gain_low"], table["gain_high"]),
                        [design.artifact.name for design in found.values()])


@quantity("over versions of one model, gain and sparsity correlate at r = {effect}")
def gain_over_sparsity_at_equal_size(statistic: str) -> Effect:
    """Correlation (Pearson's) of the needles gained by RetMask with a measure of sparsity,
    over versions of one model that differ in it; Fisher's interval."""
    found = sparsity_and_gain()
    if found is None or found.done[RETMASK] < found.planned[RETMASK]:
        raise NotStored("not all trainings of versions of one model are stored. They are made by "
                        " `rmutils run 05_score_distribution -p compute_sparsity auto`.")
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
                        [standard_error(effect.low, effect.high) for effect in effects],
                        [*(name for effect in effects for name in effect.artifacts),
                         *(artifact.name for _, artifact in detections)])


CORRELATION = "correlation"


def _correlation(
    sparsity: np.ndarray, values: np.ndarray, errors: Sequence[float], names: Sequence[str]
) -> Effect:
    """Blind where the values themselves do not differ more than chance explains."""
    q, freedom, p = heterogeneity(values, errors)
    alike = (f"the {len(values)} models do not differ more than chance explains (Q = {q:.1f} with "
             f"{freedom} degrees of freedom)" if p > ALPHA else "")
    return Effect.of(correlation(sparsity, values, errors), CORRELATION, names, len(values),
                     f"{len(values)} models", alike)
