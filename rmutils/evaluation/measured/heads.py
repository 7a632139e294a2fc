"""What is measured of retrieval heads themselves, from stored detections."""

from __future__ import annotations

import numpy as np

from rmutils.evaluation.claims import Effect
from rmutils.evaluation.masking_sweep import scored
from rmutils.heads.scores import DECIMALS
from rmutils.heads.sparsity import share_above
from rmutils.heads.stability import ranking_stability
from rmutils.models.registry import tau_of

NEEDLES = 3
"""As many as the detection script that section 4.1 adopts has."""
TENTH = 0.1


def share_of_retrieval_heads(model: str) -> Effect:
    """Share of heads at or above the model's threshold."""
    scores, artifact = scored(model, compute="never")
    means = np.concatenate([scores.mean[None], scores.bootstrap()]).round(DECIMALS)
    return Effect.drawn(share_above(means, tau_of(model)), "share of heads", [artifact.name])


def scores_held_by_top_tenth(model: str) -> Effect:
    """Share of all retrieval scores, added up, that the highest tenth of the heads hold."""
    scores, artifact = scored(model, compute="never")
    means = np.concatenate([scores.mean[None], scores.bootstrap()])
    ranked = -np.sort(-means.reshape(len(means), -1), axis=1)
    top = ranked[:, :round(TENTH * ranked.shape[1])]
    return Effect.drawn(top.sum(1) / ranked.sum(1), "share of scores", [artifact.name])


def retrieval_heads_from_few_needles(model: str) -> Effect:
    """Share of the retrieval heads that a detection with three of the needles finds, too; the
    interval holds 95 % of the choices of three."""
    scores, artifact = scored(model, compute="never")
    heads = len(scores.select(tau=tau_of(model)))
    row = ranking_stability(scores, [NEEDLES], top_k=heads, draws=200).iloc[0]
    return Effect(row["overlap"], row["overlap_low"], row["overlap_high"], "share of heads",
                  (artifact.name,))
