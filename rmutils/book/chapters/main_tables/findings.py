"""Scores on long texts: RetMask's lead over each comparison, by model, pooled, and in the paper."""

from collections.abc import Iterable
from functools import cache

import pandas as pd

from rmutils.book.chapters.main_tables.experiment import Evaluated, evaluated, gains
from rmutils.book.chapters.main_tables.task_effects import EVALUATIONS, gain, lead
from rmutils.book.experiments import real_tasks
from rmutils.book.experiments.planned_runs import BEFORE, MATCHED, RETMASK
from rmutils.book.findings import UNDECIDED, Measured, declare
from rmutils.book.verdicts import ALPHA, SHOWN, Claimed, answers
from rmutils.core.errors import NotStored
from rmutils.models.loading import corpus_of
from rmutils.paper import load_tables
from rmutils.preference.strategies import STRATEGIES
from rmutils.stats import Interval, Pooled, holm, pool, standard_error

MODELS, LARGER = ("tiny-llama", "tiny-qwen3", "tiny-olmo3", "smollm2-135m"), "qwen2.5-coder-0.5b"
PAPERS_MODEL = "Llama-3.1-8B-Instruct"
OTHER_HEADS = "non-retrieval-mask"
AGAINST = {OTHER_HEADS: "Non-Retrieval-Mask", "random-mask": "Random-Mask", "sft": "",
           BEFORE: "Before"}
"""What RetMask is compared with -> its row in the paper's Table 1, which does without one."""


@cache
def leads(against: str) -> dict[str, Interval]:
    """Return what each model scores more after RetMask than in a comparison, in points."""
    if against == BEFORE:
        found = {model: gain(model) for model in (*MODELS, LARGER)}
    else:
        found = {model: lead(model, against) for model in MODELS}
        if against == OTHER_HEADS:
            found[LARGER] = lead(LARGER, MATCHED)
    return {model: Interval(one.value, one.low, one.high) for model, one in found.items()}


def pooled_lead(against: str) -> Pooled:
    """Pool the leads over the models."""
    found = leads(against).values()
    return pool([one.value for one in found], [standard_error(one.low, one.high) for one in found])


def beside_controls() -> tuple[pd.DataFrame, dict[str, float]]:
    """Return a row for each comparison and model, pooled ones too, and the paper's leads."""
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


GAINS, REAL = "fig-gains", "fig-real-tasks"


@cache
def evaluations(model: str, strategies: tuple[str, ...]) -> Evaluated:
    """Look up what a model scores before and after its training runs."""
    return evaluated(model, EVALUATIONS[corpus_of(model)], strategies)


def _row(table: pd.DataFrame, model: str, strategy: str) -> pd.Series:
    rows = table[table["strategy"] == strategy] if len(table) else table
    if rows.empty:
        raise NotStored(f"{model} is not evaluated after {STRATEGIES[strategy].name} with all its "
                        "seeds.")
    return rows.iloc[0]


@declare("score-gain", unit="points", place=GAINS, otherwise=(
    "{strategy} changes the score of {model} on long texts by {value} points {ci}: {verdict}."))
def score_gain(model: str, strategies: tuple[str, ...], strategy: str = RETMASK) -> Measured:
    """Mean over categories and lengths after a training, minus before; p over the trainings."""
    found = evaluations(model, strategies)
    row = _row(gains(found), model, strategy)
    return Measured.row(row, found.artifacts, clusters=int(row["clusters"]), p="p_holm",
                        strategy=STRATEGIES[strategy].name)


def counted(tables: Iterable[pd.DataFrame]) -> dict[str, int]:
    """Count comparisons: better and worse with p corrected, by their intervals alone, and all."""
    rows = pd.concat(tables)
    sure = rows["p_holm"] <= ALPHA
    above, below = rows["low"] > 0, rows["high"] < 0
    return {"better": int((sure & above).sum()), "worse": int((sure & below).sum()),
            "above": int(above.sum()), "below": int(below.sum()), "all": len(rows)}


@declare("score-gain-with-room", unit="points", place="fig-leads", otherwise=(
    "Over the categories with room, RetMask changes the score of {model} by {value} points {ci}: "
    "{verdict}."))
def score_gain_with_room(model: str) -> Measured:
    """Gain by RetMask over the categories that could have moved; p corrected for four models."""
    effects = {name: gain(name) for name in MODELS}
    judged = dict(zip(effects, answers([(one, Claimed(above=0)) for one in effects.values()]),
                      strict=True))[model]
    one = effects[model]
    return Measured(Interval(one.value, one.low, one.high), one.artifacts, one.clusters, judged.p,
                    None if judged.verdict == SHOWN else UNDECIDED, {"model": model})


@cache
def tasks_lost() -> dict[str, pd.Series]:
    """Compare the score without top heads with that without others of their layers, by model."""
    rows = {}
    for model in real_tasks.MODELS:
        try:
            rows[model] = real_tasks.tasks_by_state(model).effects().iloc[0]
        except NotStored:
            continue
    corrected = holm([row["p"] for row in rows.values()], len(real_tasks.MODELS))
    return {model: pd.Series({**row, "p_holm": p})
            for (model, row), p in zip(rows.items(), corrected, strict=True)}


@declare("task-points-lost", unit="points", place=REAL, otherwise=(
    "Without its top heads, {model} loses {value} points {more|less} of its score on long texts "
    "{ci} than without others of the same layers: {verdict}."))
def task_points_lost(model: str) -> Measured:
    """Score without others of the same layers, minus without the heads that copy most."""
    if model not in (found := tasks_lost()):
        raise NotStored(f"The tasks of {model} are not stored. `rmutils run 03_main_tables -p "
                        "compute_real auto` makes them.")
    used = [artifact.name for artifact in real_tasks.tasks_by_state(model).artifacts]
    return Measured.row(found[model], used, p="p_holm")
