"""What the front page shows of the results of other chapters, and what is pooled over them."""

from __future__ import annotations

from functools import cache

import pandas as pd

from rmutils.book.claims.effects import task_effects
from rmutils.book.experiments import needles_left
from rmutils.book.experiments.masked_needles import MATCHED as SAME_LAYERS
from rmutils.book.experiments.masked_needles import TOP, WHOLE
from rmutils.book.experiments.planned_runs import BEFORE, MATCHED
from rmutils.core.experiment import load_plan
from rmutils.heads.scores import Head
from rmutils.paper import load_tables
from rmutils.paper.tables import load_published_scores
from rmutils.stats import Interval, Pooled, pool, standard_error

SMALL, TRAINED = "smollm2-135m", "qwen2.5-coder-0.5b"
TEACHING = ("tiny-llama", "tiny-qwen3", "tiny-olmo3")
OTHER_HEADS = "non-retrieval-mask"
AGAINST = {OTHER_HEADS: "Non-Retrieval-Mask", "random-mask": "Random-Mask", "sft": "",
           BEFORE: "Before"}
"""What RetMask is compared with -> its row in the paper's Table 1, which does without one."""
PAPERS_MODEL, TAU = "Llama-3.1-8B-Instruct", 0.1
"""The model whose lead is drawn beside ours, and the paper's threshold for it."""


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


@cache
def leads(against: str) -> dict[str, Interval]:
    """Return what each model scores more after RetMask than in a comparison, in points, over the
    categories and lengths that could have moved.

    The larger model has one control, which masks other heads of the same layers.
    """
    found = {model: task_effects.gain(model) if against == BEFORE else
             task_effects.lead(model, against) for model in (*TEACHING, SMALL)}
    if (theirs := {BEFORE: BEFORE, OTHER_HEADS: MATCHED}.get(against)) is not None:
        found[TRAINED] = (task_effects.gain(TRAINED) if theirs == BEFORE else
                          task_effects.lead(TRAINED, theirs))
    return {model: Interval(one.value, one.low, one.high) for model, one in found.items()}


def pooled_lead(against: str) -> Pooled:
    """Pool the leads over the models."""
    found = leads(against).values()
    return pool([one.value for one in found],
                [standard_error(one.low, one.high) for one in found])


def beside_controls() -> tuple[pd.DataFrame, dict[str, float]]:
    """Return a row for each comparison and model, pooled ones with the model "", and the paper's
    lead in each comparison."""
    rows = [(against, model, *one) for against in AGAINST
            for model, one in {**leads(against), "": pooled_lead(against).interval}.items()]
    return (pd.DataFrame(rows, columns=["against", "model", "value", "low", "high"]),
            {against: paper_lead(against) for against, row in AGAINST.items() if row})


def paper_lead(against: str) -> float:
    """Return what the paper's Table 1 gives RetMask more, as a mean over its lengths."""
    table = load_tables()
    own = table[(table["source"] == "en") & (table["table"] == 1)
                & (table["group"] == PAPERS_MODEL)].set_index("row")["value"].astype(float)
    return float(own["RetMask"].mean() - own[AGAINST[against]].mean())


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
