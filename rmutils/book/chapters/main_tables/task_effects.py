"""Gains on long contexts (section 4) and losses of other abilities (5.1), in points of 0 to 100."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from rmutils.book.chapters.training_effect import real_training
from rmutils.book.experiments.planned_runs import BEFORE, RETMASK, seeds_said, trainings
from rmutils.book.experiments.real_tasks import LENGTH, WHOLE, difference, tasks_by_state
from rmutils.book.experiments.thinking_twin import TWIN, twin_baselines, twin_scores
from rmutils.book.findings import declare
from rmutils.book.verdicts import CATEGORIES, CannotShow, Effect, blind_spot, quantity
from rmutils.core.errors import UserError
from rmutils.evaluation.helmet import EvaluateConfig, evaluate_stored
from rmutils.evaluation.helmet.averages import samples_of
from rmutils.evaluation.helmet.evaluation import baselines_stored
from rmutils.models.loading import corpus_of
from rmutils.stats import RELATIVE, Interval, draws, interval, interval_of, paired

FEWER_PAIRS = "retmask, fewer pairs"
OTHERS_PAIRS = "retmask, another model's pairs"
OWN = "own instructions"
HIGHER_THRESHOLD = "retmask, threshold 0.1"
RATES = {"5 times the rate": 0.0005, "50 times the rate": 0.005}  # appendix A tries these ratios
EVALUATIONS = {"world": EvaluateConfig(lengths=(256, 512, 1024, 2048), samples=20),
               "book": EvaluateConfig(lengths=(1024, 2048))}
"""Corpus of a model (`LanguageModel.corpus`) -> how it is evaluated: up to the window of a teaching
model, and a real one as far as two cores allow. Without thoughts; section 4.1 lets Qwen3 think."""
THINKING = EvaluateConfig(lengths=(512, 1024), samples=20, thinking=True)
"""How trainings that leave reasoning out are evaluated. Section 4.5: "with reasoning enabled"; its
figure has 128K only. Thoughts need room in the window."""
FEW = 18  # instructions where 512 are usual: as 10K are to 294K (section 4.3)
AUTHORS: dict[str, dict[str, Any]] = {
    "tiny-qwen3": {"synthesizer": "tiny-llama"},
    "tiny-llama": {"synthesizer": "tiny-qwen3", "responses.thinking": False}}
"""Who writes another model's pairs (appendix E), by the plan `left_tables`."""


def scores_of(model: str, strategies: Sequence[str],
              config: EvaluateConfig | None = None) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Long-context scores of a model before and after training, for all planned seeds."""
    parts = [_scores(model, strategy, config) for strategy in strategies]
    return pd.concat([table for table, _ in parts]), tuple(n for _, names in parts for n in names)


@cache
def _scores(model: str, strategy: str,
            config: EvaluateConfig | None) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """`scores_of` one strategy; read once."""
    if model == TWIN:
        return twin_scores(strategy)
    config = config or EVALUATIONS[corpus_of(model)]
    tables, names = [], []
    for seed, name in _trained(model, strategy):
        table, artifact = evaluate_stored(name, config, compute="never")
        tables.append(samples_of(table).assign(strategy=strategy, seed=seed))
        names.append(artifact.name)
    return pd.concat(tables), tuple(names)


def _trained(model: str, strategy: str) -> list[tuple[int, str]]:
    """Seeds and names of the models to be evaluated."""
    if strategy == BEFORE:
        return [(0, model)]
    name, _, varied = strategy.partition(", ")
    runs = trainings(model, name, **{
        "": {}, "fewer pairs": {"instructions": FEW}, "another model's pairs": AUTHORS.get(model),
        OWN: {"source": "self", "instructions": 256}, "threshold 0.1": {"tau": 0.1},
        **{times: {"recipe.learning_rate": rate} for times, rate in RATES.items()}}[varied])
    return [(run.artifact.manifest["config"]["seed"], run.training) for run in runs]


@cache
def blind_cells(model: str, config: EvaluateConfig | None = None) -> dict[tuple[str, int], str]:
    """Category and length -> why the untrained model's score there could not have moved."""
    table = twin_baselines() if model == TWIN else baselines_stored(
        model, config or EVALUATIONS[corpus_of(model)])[0]
    found = {}
    for (category, length), rows in table.groupby(["category", "length"], sort=False):
        mean = rows[["score", "shuffled", "constant"]].mean()
        found[category, length] = blind_spot(
            mean["score"], mean[["shuffled", "constant"]].max(), f"{category} at {length} tokens",
            same=rows["times"].sum() / rows["questions"].sum(), answer=rows.iloc[0]["commonest"])
    return found


@dataclass(frozen=True)
class Pairs:
    """Samples before and after, of all categories and lengths that could have moved."""

    # `values`, `texts`, `categories`: As from `rmutils.stats.paired`.
    values: np.ndarray
    texts: np.ndarray
    categories: np.ndarray
    names: tuple[str, ...]  # of stored results
    note: str  # what counts, and over how many training runs

    @property
    def clusters(self) -> int:
        """Texts in all categories."""
        return len({*zip(self.categories, self.texts, strict=True)})

    @property
    def gains(self) -> np.ndarray:
        """(samples, seeds): differences."""
        return np.asarray(self.values[..., 0] - self.values[..., 1])


POINTS = "points"


@quantity("{strategy} changes the score of {model} on long texts by {effect} points")
def gain(model: str, strategy: str = RETMASK) -> Effect:
    """Score after a training minus that before it, average over categories and lengths."""
    return _less(model, strategy, BEFORE)


@quantity("{strategy} changes the score of {model} at {length} tokens by {effect} points")
def gain_at(model: str, length: int, strategy: str = RETMASK) -> Effect:
    """Score after a training minus that before it at one length, average over categories."""
    return _less(model, strategy, BEFORE, length=length)


@quantity("RetMask changes the score of {model} on the longest texts by {effect} points")
def gain_at_longest(model: str) -> Effect:
    """Score after RetMask minus that before it at the longest length, average over categories."""
    return gain_at(model, max(EVALUATIONS[corpus_of(model)].lengths))


@quantity("on long texts the score of {model} after RetMask minus that after {other} is "
          "{effect} points")
def lead(model: str, other: str) -> Effect:
    """Score after RetMask minus that after another training, over categories and lengths."""
    return _less(model, RETMASK, other)


@quantity("the {category} score of {model} after RetMask minus that after {other} is {effect} "
          "points")
def lead_in(model: str, other: str, category: str) -> Effect:
    """Score after RetMask minus that after another training in one category, over lengths."""
    return _less(model, RETMASK, other, category=category)


@quantity("at {length} tokens the score of {model} after RetMask minus that after {other} is "
          "{effect} points")
def lead_at(model: str, other: str, length: int) -> Effect:
    """Score after RetMask minus that after another training at one length, average over
    categories."""
    return _less(model, RETMASK, other, length=length)


@quantity("RetMask changes the {category} score of {model} by {effect} points")
def category_gain(model: str, category: str) -> Effect:
    """Score after RetMask minus that before it in one category, average over lengths."""
    return _less(model, RETMASK, BEFORE, category=category)


@quantity("RetMask changes the {category} score of {model} by {effect} %", scale=100)
def relative_category_gain(model: str, category: str) -> Effect:
    """Gain by RetMask in one category, as a share of the score before, average over lengths."""
    pairs = _side_by_side(model, RETMASK, BEFORE, category=category)
    drawn = draws(pairs.values, pairs.texts, pairs.categories, seeds=True)
    change = interval_of(drawn[:, 0] / drawn[:, 1] - 1, bounds=RELATIVE)
    return Effect.of(change, "share of the score before", pairs.names, pairs.clusters, pairs.note)


@quantity("RetMask's gain of {model} in {categories} minus that in the rest is {effect} points")
def category_gain_beyond(model: str, *categories: str) -> Effect:
    """Mean gain by RetMask in some categories minus that in the others."""
    pairs = _side_by_side(model, RETMASK, BEFORE)
    inside, every = np.isin(pairs.categories, categories), len(np.unique(pairs.categories))
    chosen = len(np.unique(pairs.categories[inside]))
    if not 0 < chosen < every:
        raise CannotShow(f"neither {' nor '.join(categories)} could have moved" if not chosen else
                         "no other category could have moved", POINTS, pairs.names)
    weights = np.where(inside, every / chosen, -every / (every - chosen))
    return _effect(pairs, weights[:, None] * pairs.gains)


@quantity("RetMask's gain of {model} minus that of {other} is {effect} points")
def gain_beyond(model: str, other: str) -> Effect:
    """Gain by RetMask on one model minus that on another."""
    both = [_side_by_side(name, RETMASK, BEFORE) for name in (model, other)]
    # Chance is drawn for each by itself.
    drawn = [draws(pairs.gains, pairs.texts, pairs.categories, seeds=True, seed=seed)
             for seed, pairs in enumerate(both)]
    return Effect.of(interval_of(drawn[0] - drawn[1]), POINTS, [n for p in both for n in p.names],
                     min(pairs.clusters for pairs in both),
                     "; ".join(f"{name}: {pairs.note}" for name, pairs in zip(
                         (model, other), both, strict=True)))


@declare("gain-over-twin", unit="points", place="instruct-and-think", scale=1, otherwise=(
    "RetMask raises the score of {model} by {value} points {more|less} {ci} than that of its "
    "thinking twin: {verdict}."))
@quantity("RetMask's gain of {model} minus that of its thinking twin is {effect} points")
def gain_over_thinking_twin(model: str) -> Effect:
    """Gain by RetMask minus that of the twin that thinks first, on the same questions and seeds."""
    own, twin = (_side_by_side(name, RETMASK, BEFORE, beside=other)
                 for name, other in ((model, TWIN), (TWIN, model)))
    if not np.array_equal(own.texts, twin.texts):
        raise UserError(f"{TWIN} was not asked the questions of {model}.")
    return replace(_effect(twin, own.gains[:, :twin.gains.shape[1]] - twin.gains),
                   artifacts=own.names + twin.names)


@quantity("thirty times the pairs change RetMask's gain of {model} by {effect} points")
def gain_by_more_pairs(model: str) -> Effect:
    """Score after RetMask minus that after RetMask with a thirtieth of the pairs."""
    return _less(model, RETMASK, FEWER_PAIRS)


@quantity("on instructions of its own, the score of {model} after RetMask minus that after {other} "
          "is {effect} points")
def lead_by_own_instructions(model: str, other: str) -> Effect:
    """Score after RetMask minus that after another training, both on instructions that the
    model wrote itself."""
    return _less(model, f"{RETMASK}, {OWN}", other if other == BEFORE else f"{other}, {OWN}")


@declare("others-pairs", unit="points", place="main-tables", scale=1, otherwise=(
    "RetMask on another model's pairs changes the score of {model} by {value} points {ci}: "
    "{verdict}."))
@quantity("RetMask on another model's pairs changes the score of {model} by {effect} points")
def gain_by_others_pairs(model: str) -> Effect:
    """Score after RetMask on pairs that another model wrote, minus that before training."""
    return _less(model, OTHERS_PAIRS, BEFORE)


@declare("own-pairs", unit="points", place="main-tables", scale=1, otherwise=(
    "RetMask on own pairs scores {value} points {more|less} {ci} in {model} than on another "
    "model's: {verdict}."))
@quantity("own pairs, minus another model's, change the score of {model} by {effect} points")
def gain_by_own_pairs(model: str) -> Effect:
    """Score after RetMask on own pairs minus that after RetMask on pairs of another model."""
    return _less(model, RETMASK, OTHERS_PAIRS)


@declare("lower-threshold", unit="points", place="main-tables", scale=1, otherwise=(
    "Pairs by τ = 0.05 minus pairs by 0.1 change the score of {model} by {value} points {ci}: "
    "{verdict}."))
def gain_by_lower_threshold(model: str) -> Effect:
    """Score after RetMask at 0.05, the threshold of the main tables, minus that at 0.1 (Table 7).
    """
    return _less(model, RETMASK, HIGHER_THRESHOLD)


@declare("higher-rate", unit="points", place="main-tables", scale=1, otherwise=(
    "Training at {times} changes the score of {model} by {value} points {ci}: {verdict}."))
def gain_by_higher_rate(model: str, times: str) -> Effect:
    """Score after RetMask at a higher learning rate minus that at the main tables' (appendix A)."""
    return _less(model, f"{RETMASK}, {times}", RETMASK)


@quantity("pairs with their reasoning {how}, minus whole pairs, change the score of {model} by "
          "{effect} points")
def left_out(model: str, how: str, category: str | None = None) -> Effect:
    """Score after RetMask on pairs whose reasoning is left out (removed, or never written)
    minus that on whole pairs; both think when evaluated."""
    return _less(model, f"rc-{how}", RETMASK, config=THINKING, category=category)


@quantity("pairs with their reasoning {how}, minus whole pairs, change the score of {model} by "
          "{effect} points")
def gain_kept(model: str, how: str) -> Effect:
    """The same over all categories, where whole pairs bring a gain: else there is none to keep."""
    whole, effect = _less(model, RETMASK, BEFORE, config=THINKING), left_out(model, how)
    blind = "" if whole.low > 0 else "whole pairs bring no gain that could be lost"
    return replace(effect, blind=effect.blind or blind)


@quantity("RetMask on pairs with their reasoning {how} changes the score of {model} by {effect} "
          "points")
def gain_left_out(model: str, how: str) -> Effect:
    """Score after RetMask on pairs whose reasoning is left out (removed, or never written)
    minus that before training; both think when evaluated."""
    return _less(model, f"rc-{how}", BEFORE, config=THINKING)


def _less(model: str, strategy: str, base: str, **chosen: Any) -> Effect:
    if model in real_training.TRAINED:
        return task_change(model, strategy, base, **chosen)
    pairs = _side_by_side(model, strategy, base, **chosen)
    return _effect(pairs, pairs.gains)


def _effect(pairs: Pairs, gains: np.ndarray) -> Effect:
    return Effect.of(interval(gains, pairs.texts, pairs.categories, seeds=True), POINTS,
                     pairs.names, pairs.clusters, pairs.note)


def _side_by_side(model: str, strategy: str, base: str, *, config: EvaluateConfig | None = None,
                  category: str | None = None, length: int | None = None,
                  beside: str | None = None) -> Pairs:
    """Two strategies, in a category or at a length, as far as it could have moved, also in the
    model beside it."""
    table, names = scores_of(model, (strategy, base), config)
    for column, wanted in (("stratum", category), ("length", length)):
        if wanted is not None:
            table = table[table[column] == wanted]
    asked = table[["stratum", "length"]].drop_duplicates().itertuples(index=False, name=None)
    cells = {cell: blind_cells(model, config)[cell] for cell in asked}
    if beside:
        other = blind_cells(beside, config)
        cells = {cell: why or other.get(cell, f"{beside} was not asked there")
                 for cell, why in cells.items()}
    heard = [cell for cell, why in cells.items() if not why]
    categories = list(dict.fromkeys(cell[0] for cell in heard))
    if not heard:
        more = f"; the same in {len(cells) - 1} other tests" if len(cells) > 1 else ""
        raise CannotShow(next(iter(cells.values())) + more, POINTS, names)
    if category is None and len(categories) < CATEGORIES:
        raise CannotShow(f"only {' and '.join(categories)} could have moved, and one category is "
                         "no average", POINTS, names)
    table = table[[cell in heard for cell in zip(table["stratum"], table["length"], strict=True)]]
    seeds = table.loc[table["strategy"] == strategy, "seed"]
    return Pairs(*paired(table, strategy, base), names,
                 f"{_list(cells, heard)}; {seeds_said(seeds)}")


def _list(cells: Iterable[tuple[str, int]], heard: Sequence[tuple[str, int]]) -> str:
    """Name the categories that count, with their lengths where these are not all."""
    lengths: dict[str, list[str]] = {}
    for category, length in heard:
        lengths.setdefault(category, []).append(str(length))
    every = {category: sum(one == category for one, _ in cells) for category in lengths}
    return ", ".join(
        category if len(found) == every[category] else f"{category} ({', '.join(found)} tokens)"
        for category, found in lengths.items())


@quantity("without the 12 % of its heads that copy most {model} scores {effect} points less on "
          "tasks than without the same number of others of these layers")
def score_lost_beyond_same_layers(model: str) -> Effect:
    """Score on long-context tasks with other heads of the same layers masked, minus that with
    the heads that copy most masked; mean over the data sets that a pilot left."""
    states = tasks_by_state(model)
    row, whole = states.effects().iloc[0], states.answers[WHOLE]  # the primary comparison
    return Effect.of(Interval(row.value, row.low, row.high), "points", states.artifacts, len(whole),
                     _data_sets(whole), blind_spot(_mean(whole), 0, "the mean", ceiling=False))


def _mean(table: pd.DataFrame) -> float:
    return float(table.groupby("dataset")["score"].mean().mean())


def _data_sets(table: pd.DataFrame) -> str:
    """Name them: a pilot left those with room in both directions."""
    return f"{', '.join(table['dataset'].unique())}, at {LENGTH:,} tokens"


def task_change(model: str, strategy: str, base: str, length: int | None = None) -> Effect:
    """Score on tasks after a training minus that before it, or after another."""
    if length not in (None, LENGTH):
        raise UserError(f"tasks of {model} are asked at {LENGTH:,} tokens, not at {length:,}.")
    parts = real_training.outcome_by_seed(model, "tasks", strategy, base)
    before = real_training.outcome_by_seed(model, "tasks", BEFORE, BEFORE)[0][0]
    return real_training.effect_over_seeds(
        difference(parts, "score", "sample", "dataset").interval, "points",
        real_training.trained(model),
        len(before), _data_sets(before) + "; ", blind_spot(_mean(before), 0, "the mean"))
