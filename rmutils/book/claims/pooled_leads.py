"""RetMask's lead over each comparison, model by model, pooled over models, and in the paper."""

from __future__ import annotations

from functools import cache

import pandas as pd

from rmutils.book.claims.effects import task_effects
from rmutils.book.experiments.planned_runs import BEFORE, MATCHED
from rmutils.paper import load_tables
from rmutils.stats import Interval, Pooled, pool, standard_error

MODELS, LARGER = ("tiny-llama", "tiny-qwen3", "tiny-olmo3", "smollm2-135m"), "qwen2.5-coder-0.5b"
PAPERS_MODEL = "Llama-3.1-8B-Instruct"
OTHER_HEADS = "non-retrieval-mask"
AGAINST = {OTHER_HEADS: "Non-Retrieval-Mask", "random-mask": "Random-Mask", "sft": "",
           BEFORE: "Before"}
"""What RetMask is compared with -> its row in the paper's Table 1, which does without one."""


@cache
def leads(against: str) -> dict[str, Interval]:
    """Return what each model scores more after RetMask than in a comparison, in points, over the
    categories and lengths that could have moved.

    The larger model has one control, which masks other heads of the same layers.
    """
    found = {model: task_effects.gain(model) if against == BEFORE else
             task_effects.lead(model, against) for model in MODELS}
    if (theirs := {BEFORE: BEFORE, OTHER_HEADS: MATCHED}.get(against)) is not None:
        found[LARGER] = (task_effects.gain(LARGER) if theirs == BEFORE else
                          task_effects.lead(LARGER, theirs))
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
