"""What the training costs elsewhere: abilities on the same questions, copied answers, drift."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache

import pandas as pd

from rmutils.book.chapters.training_effect.real_training import (
    TRAINED,
    effect_over_seeds,
    outcome_by_seed,
    trained,
)
from rmutils.book.experiments import real_tasks
from rmutils.book.experiments.planned_runs import (
    BEFORE,
    RETMASK,
    planned_runs,
    retrain,
    seeds_said,
    stored_runs,
    trainings,
)
from rmutils.book.findings import NONE, Measured, declare
from rmutils.book.verdicts import CannotShow, Effect, blind_spot, quantity
from rmutils.core.config import command_line
from rmutils.core.errors import NotStored
from rmutils.core.results import Artifact, Compute, find
from rmutils.corpora.world.knowledge import ON_TOPIC
from rmutils.evaluation.abilities import evaluate_abilities as drifts
from rmutils.evaluation.abilities.ability_tasks import TASKS, each_question_once, tasks_of
from rmutils.evaluation.abilities.evaluate_abilities import (
    General,
    GeneralConfig,
    drift_table,
    evaluate_general_stored,
)
from rmutils.models.loading import corpus_of
from rmutils.pipeline.retmask import RetMaskRun
from rmutils.preference.strategies import STRATEGIES
from rmutils.stats import MORE_POINTS, POINTS, Interval, compare, holm, interval

ALL = "mean of the tasks"


def ability_table(samples: pd.DataFrame) -> pd.DataFrame:
    """Mean scores; unscored samples (NaN) are left out and counted."""
    rows = []
    for name, part in samples.groupby("task", sort=False):
        scores = part["score"].dropna()
        rows.append((name, len(scores), len(part) - len(scores),
                     *(interval(scores, bounds=POINTS) if len(scores) else [None] * 3)))
    columns = ["task", "samples", "unscored", "value", "low", "high"]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[3:], float))


def means_by_strategy(samples: pd.DataFrame) -> pd.DataFrame:
    """Mean score of each task under each strategy, with intervals over samples and seeds."""
    rows = []
    for (strategy, task), part in samples.groupby(["strategy", "task"], sort=False):
        scores = part.pivot(index="sample", columns="seed", values="score").dropna().to_numpy()
        rows.append((strategy, task, scores.shape[1], *interval(scores, seeds=True, bounds=POINTS)))
    return pd.DataFrame(rows, columns=["strategy", "task", "seeds", "value", "low", "high"])


def at_a_constant(samples: pd.DataFrame, constant: Mapping[str, float]) -> list[str]:
    """List the tasks in which a model is not surely above a constant answer before training."""
    before = means_by_strategy(samples[samples["strategy"] == BEFORE])
    return [row.task for row in before.itertuples() if row.low <= constant[row.task]]


def changes(samples: pd.DataFrame, base: str) -> pd.DataFrame:
    """Changes of each task, and of their plain mean, under each strategy."""
    per_task = pd.concat([compare(part, base, bounds=MORE_POINTS).assign(task=task)
                          for task, part in samples.groupby("task", sort=False)])
    per_task["p_holm"] = holm(per_task["p"])
    overall = compare(each_question_once(samples).rename(columns={"task": "stratum"}), base,
                      bounds=MORE_POINTS).assign(task=ALL)
    found = pd.concat([overall, per_task], ignore_index=True)
    return found[["task", *found.columns.drop("task")]]


def drift_by_strategy(drift: pd.DataFrame) -> pd.DataFrame:
    """`drift_table` for each strategy, over all its seeds."""
    return pd.concat([drift_table(part).assign(strategy=strategy)
                      for strategy, part in drift.groupby("strategy", sort=False)],
                     ignore_index=True)


Result = tuple[General, Artifact]
_CONFIGS = {"world": GeneralConfig(samples=480), "book": GeneralConfig()}
"""Corpus -> what is asked. Teaching models answer so fast that they can be asked more."""


def planned_abilities(model: str) -> GeneralConfig:
    """The questions for a model and its training runs."""
    return _CONFIGS[corpus_of(model)]


@dataclass(frozen=True)
class Abilities:
    """Results of a model and its training runs."""

    # `strategy` (`before`, or a key of `STRATEGIES`), `seed` (of the training), and the columns of
    # `General.samples`; of the tasks that all of them were asked.
    samples: pd.DataFrame
    # `strategy`, `seed`, and the columns of `General.drift`; nothing for the model before.
    drift: pd.DataFrame
    artifacts: dict[tuple[str, int], Artifact]  # (strategy, seed) -> where it is stored
    # Command lines that make what is missing: results, and the training runs that they wait for.
    missing: list[str]


def stored_abilities(model: str) -> Abilities:
    """Read what is stored of the planned results of a model, and compute nothing."""
    return _collect(model, lambda run, config: _evaluate(model, run, config, "never"))


def evaluate_trainings(model: str, workers: int = 1) -> Abilities:
    """All planned results of a model: what is not stored is computed, by so many processes."""
    def evaluate(run: RetMaskRun | None, config: GeneralConfig) -> Result:
        try:
            return _evaluate(model, run, config, "never")
        except NotStored:
            if run and find(run.training) is None:
                retrain(model, run)
            return _evaluate(model, run, config, "auto", workers)

    return _collect(model, evaluate)


def _evaluate(model: str, run: RetMaskRun | None, config: GeneralConfig, compute: Compute,
              workers: int = 1) -> Result:
    return evaluate_general_stored(run.training if run else model, config, compute=compute,
                                   base=model if run else None, command=_command(model),
                                   workers=workers)


def _command(model: str) -> str:
    return command_line("abilities", model, "--trainings")


def _collect(model: str,
             evaluate: Callable[[RetMaskRun | None, GeneralConfig], Result]) -> Abilities:
    config, missing = planned_abilities(model), []
    runs: list[tuple[str, int, RetMaskRun | None]] = [(BEFORE, 0, None)]
    for wanted in planned_runs(model):
        stored, lacking = stored_runs(model, [wanted])
        runs += [(wanted.strategy, wanted.seed, run) for run in stored]
        missing += lacking
    tables, artifacts = {"samples": [], "drift": []}, {}
    for strategy, seed, run in runs:
        try:
            result, artifacts[strategy, seed] = evaluate(run, config)
        except NotStored:
            missing.append(_command(model))
            continue
        for name, parts in tables.items():
            table = getattr(result, name)
            if len(table):
                parts.append(table.assign(strategy=strategy, seed=seed))
    if samples := tables["samples"]:  # a task may have been skipped where one of them was made
        of_all = set.intersection(*(set(part["task"]) for part in samples))
        tables["samples"] = [part[part["task"].isin(of_all)] for part in samples]
    samples, drift = (pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
                      for parts in tables.values())
    return Abilities(samples, drift, artifacts, list(dict.fromkeys(missing)))


def general_scores_of(model: str) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Scores on tasks without long contexts, before and after RetMask, for all planned seeds."""
    config, tables, names = planned_abilities(model), [], []
    trained = [(RETMASK, run.artifact.manifest["config"]["seed"], run.training)
               for run in trainings(model, RETMASK)]
    for strategy, seed, name in [(BEFORE, 0, model), *trained]:
        try:
            found, artifact = evaluate_general_stored(
                name, config, base=None if strategy == BEFORE else model, compute="never")
        except NotStored:
            raise NotStored(f"not all scores of {model} in general abilities are stored. They are "
                            f"made by `rmutils abilities {model} --trainings`.") from None
        tables.append(found.samples.assign(strategy=strategy, seed=seed))
        names.append(artifact.name)
    return pd.concat(tables), tuple(names)


@quantity("RetMask changes the mean score of {model} on short tasks by {effect} points")
def general_change(model: str) -> Effect:
    """Score after RetMask minus that before it, plain mean of the tasks without long contexts."""
    if model in TRAINED:
        return _general_change_of_larger(model)
    table, names = general_scores_of(model)
    heard, told = _able_to_change(table[table["strategy"] == BEFORE], corpus_of(model), names)
    table = table[table["task"].isin(heard)]
    found = changes(table, BEFORE)
    mean = found[found["task"] == ALL].iloc[0]
    seeds = table.loc[table["strategy"] == RETMASK, "seed"]
    return Effect.of(
        Interval(mean["effect"], mean["low"], mean["high"]), "points", names,
        len(table[["task", "sample"]].drop_duplicates()), f"{told}; {seeds_said(seeds)}")


def _general_change_of_larger(model: str) -> Effect:
    """The same of a larger model, over its seeds."""
    parts = outcome_by_seed(model, "abilities", RETMASK, BEFORE)
    heard, told = _able_to_change(parts[0][1], "book", ())
    kept = [(one[one["task"].isin(heard)], other[other["task"].isin(heard)])
            for one, other in parts]
    change = real_tasks.difference(kept, "score", "sample", "task")
    return effect_over_seeds(change.interval, "points", trained(model), len(kept[0][1]),
                             f"{told}; ")


def _able_to_change(before: pd.DataFrame, corpus: str,
                    names: Collection[str]) -> tuple[list[str], str]:
    """Return the tasks that could have moved, and say how many of all these are."""
    means = before.groupby("task", sort=False)["score"].mean()
    blind = {task: blind_spot(mean, TASKS[f"{corpus}/{task}"].chance, task, ceiling=False)
             for task, mean in means.items()}
    heard = [task for task, why in blind.items() if not why]
    if not heard:
        raise CannotShow("; ".join(blind.values()), "points", names)
    return heard, f"{len(heard)} of {len(blind)} tasks: {', '.join(heard)}"


CHANGES, COPIED, DRIFT, LARGER = ("fig-ability-changes", "copied-and-known", "fig-drift",
                                  "fig-real-abilities")
MODEL = "qwen2.5-coder-0.5b"
MAIN = (RETMASK, "smaller-model", "win-lose-pair", "non-retrieval-mask", "random-mask", "sft")
"""Strategies that a p is corrected for."""
HEART = "by heart"
NATS = 1000  # drift is told in nats per so many tokens


@cache
def abilities(model: str) -> Abilities:
    """Look up the answers of a model and its training runs."""
    found = stored_abilities(model)
    if (BEFORE, 0) not in found.artifacts or len(found.artifacts) < 2:
        raise NotStored(found.missing[0] if found.missing else
                        f"No training of {model} is planned.")
    return found


@cache
def without_room(model: str) -> tuple[str, ...]:
    """List the tasks in which a model could not lose anything."""
    constant = {task: kind.chance for task, kind in tasks_of(corpus_of(model)).items()}
    return tuple(at_a_constant(abilities(model).samples, constant))


@cache
def changed(model: str) -> pd.DataFrame:
    """Compare each training with the model before it, over tasks that could show a loss."""
    return changes(_able(model, (BEFORE, *MAIN)), BEFORE)


@cache
def leads(model: str) -> pd.DataFrame:
    """Compare RetMask with each other training, over the same tasks: RetMask minus the other."""
    rows = each_question_once(_able(model, MAIN))
    found = compare(rows.rename(columns={"task": "stratum"}), RETMASK)
    return found.assign(effect=-found["effect"], low=-found["high"], high=-found["low"])


def _able(model: str, strategies: tuple[str, ...]) -> pd.DataFrame:
    rows = abilities(model).samples
    rows = rows[~rows["task"].isin(without_room(model)) & rows["strategy"].isin(strategies)]
    if RETMASK not in set(rows["strategy"]):
        raise NotStored(f"No task of {model} could show a loss after RetMask.")
    return rows


def _row(table: pd.DataFrame, model: str, strategy: str) -> pd.Series:
    own = table[table["strategy"] == strategy]
    if own.empty:
        raise NotStored(f"{model} has no answers after {STRATEGIES[strategy].name}. "
                        f"`rmutils abilities {model} --trainings` makes them.")
    return own.iloc[0]


def _measured(row: pd.Series, model: str, strategy: str) -> Measured:
    names = [one.name for (key, _), one in abilities(model).artifacts.items()
             if key in (BEFORE, RETMASK, strategy)]
    return Measured.row(row, names, clusters=int(row["samples"]), p="p_holm", model=model,
                        strategy=STRATEGIES[strategy].name)


@declare("abilities-change", unit="points", place=CHANGES, otherwise=(
    "After {strategy}, the mean over tasks of {model} changes by {value} points {ci}: {verdict}."))
def abilities_change(model: str, strategy: str = RETMASK) -> Measured:
    """Mean over tasks after a training minus before it; p is corrected over the strategies."""
    table = changed(model)
    return _measured(_row(table[table["task"] == ALL], model, strategy), model, strategy)


@declare("abilities-lost", unit="", place=CHANGES, otherwise=(
    "{strategy} loses {value} answers that {model} had right."))
def answers_lost(model: str, strategy: str = RETMASK) -> Measured:
    """Questions that were answered right before a training and are wrong after its first run."""
    return _count(model, strategy, _changed_answers(model, strategy, 100, 0))


@declare("abilities-won", unit="", place=CHANGES, otherwise=(
    "{strategy} wins {value} answers that {model} had wrong."))
def answers_won(model: str, strategy: str = RETMASK) -> Measured:
    """Questions that were answered wrong before a training and are right after its first run."""
    return _count(model, strategy, _changed_answers(model, strategy, 0, 100))


def _count(model: str, strategy: str, found: pd.DataFrame) -> Measured:
    artifacts = abilities(model).artifacts
    return Measured.count(len(found), [artifacts[key] for key in ((BEFORE, 0), (strategy, 0))])


def _changed_answers(model: str, strategy: str, old: float, new: float) -> pd.DataFrame:
    """Answers before training with one score, if that after it is another; tasks with room."""
    rows = _able(model, (BEFORE, RETMASK, strategy))
    keys = ["task", "sample"]
    before = rows[rows["strategy"] == BEFORE].set_index(keys)
    after = rows[(rows["strategy"] == strategy) & (rows["seed"] == 0)].set_index(keys)
    return before[(before["score"] == old) & (after["score"].reindex(before.index) == new)]


def first_lost(model: str, strategy: str) -> tuple[str, dict[str, str]]:
    """Return the first question that a training loses, and the answers after every training."""
    task, sample = _changed_answers(model, strategy, 100, 0).index[0]
    _, items = planned_abilities(model).items(corpus_of(model))[task]
    rows = abilities(model).samples
    own = rows[(rows["task"] == task) & (rows["sample"] == sample) & (rows["seed"] == 0)]
    return items[sample].prompt, dict(zip(own["strategy"], own["response"], strict=True))


@declare("abilities-smallest-change", unit="points", place=CHANGES, otherwise=(
    "In {model}, a change of the mean over tasks by {value} points would likely have been seen."))
def smallest_change(model: str) -> Measured:
    """Smallest change by RetMask that four of five repetitions would have shown."""
    table = changed(model)
    row = _row(table[table["task"] == ALL], model, RETMASK)
    return Measured.count(row["smallest_effect"])


@cache
def short_instructions(model: str, kind: str) -> pd.DataFrame:
    """Compare a teaching model's short instructions before and after, copied or by heart."""
    rows = abilities(model).samples
    rows = rows[(rows["task"] == "short instructions") & rows["strategy"].isin([BEFORE, *MAIN])]
    rows = rows[rows["kind"].isin(ON_TOPIC) == (kind == HEART)]
    if rows.empty:
        raise NotStored(f"{model} is not asked short instructions.")
    return compare(rows, BEFORE)


@declare("short-instructions-change", unit="points", place=COPIED, otherwise=(
    "After RetMask, answers of {model} that are {kind} change by {value} points {ci}: {verdict}."))
def short_instructions_change(model: str, kind: str) -> Measured:
    """Change of the answers that are copied from the instruction, or given by heart."""
    row = _row(short_instructions(model, kind), model, RETMASK)
    return replace(_measured(row, model, RETMASK), words={"model": model, "kind": kind})


@declare("drift", unit="nats per 1,000 tokens", place=DRIFT, otherwise=(
    "{strategy} moves {model} by {value} nats per 1,000 tokens {ci}."))
def drift(model: str, strategy: str = RETMASK) -> Measured:
    """Divergence from the model before training on held-out text."""
    table = drift_by_strategy(abilities(model).drift)
    row = _row(table[table["measure"] == drifts.FROM_BASE], model, strategy)
    return Measured.row(row, (), NATS, verdict=NONE, strategy=STRATEGIES[strategy].name)


@cache
def masked_abilities() -> real_tasks.States:
    """Look up what the larger model answers whole, without its top heads, and without others."""
    return real_tasks.abilities_by_state(MODEL, "never")


@declare("abilities-masked", unit="points", place=LARGER, otherwise=(
    "Of {of}, {what} is {value} points for the larger model {ci}: {verdict}."))
def abilities_masked(what: str, of: str = "mean") -> Measured:
    """Score of the larger model in one state minus that in another, in all or in one task."""
    rows = masked_abilities().effects().set_index(["what", "of"])
    return Measured.row(rows.loc[(what, of)], masked_abilities().artifacts, p="p")
