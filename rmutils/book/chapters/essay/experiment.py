"""What the front page shows of the results of other chapters, and what is pooled over them."""

from __future__ import annotations

from functools import cache

import pandas as pd

from rmutils.book.experiments import needles_left
from rmutils.book.experiments.masked_needles import MATCHED as SAME_LAYERS
from rmutils.book.experiments.masked_needles import TOP, WHOLE
from rmutils.core.experiment import load_plan
from rmutils.heads.scores import Head
from rmutils.paper.tables import load_published_scores

SMALL = "smollm2-135m"
PAPERS_MODEL, TAU = "Llama-3.1-8B-Instruct", 0.1
"""The model whose published heads are counted, and the paper's threshold for it."""


@cache
def real_masking() -> needles_left.Stored:
    """Look up what the four real models find without some of their heads."""
    return needles_left.stored("masking")


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
    """Return the shape of SmolLM2, the heads that copy most, and the needles that it finds with
    all heads, without these, and without as many others of the same layers."""
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


def published_heads(distinct: bool = False) -> set[tuple[int, int]]:
    """Return the heads of the paper's model that reach its threshold in the published scores.

    Parameters
    ----------
    distinct : bool
        Count each distinct run once.
    """
    scores = load_published_scores(distinct=distinct)
    own = scores[(scores["model"] == PAPERS_MODEL) & (scores["mean"].astype(float) >= TAU)]
    return {*zip(own["layer"], own["head"], strict=True)}
