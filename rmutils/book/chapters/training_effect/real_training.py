"""RetMask on a model of half a billion parameters, against other heads of the same layers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product

import pandas as pd

from rmutils.book.chapters.training_effect.half_masked import mean_in_cases, success_of
from rmutils.book.chapters.training_effect.layer_matched_training import LayerMatchedTraining
from rmutils.book.experiments.planned_runs import (
    BEFORE,
    LARGER_MODELS,
    MATCHED,
    RETMASK,
    RetMaskExperiment,
    planned_runs,
)
from rmutils.book.experiments.real_tasks import abilities, difference, tasks
from rmutils.book.verdicts import Effect
from rmutils.core.errors import NotStored, UserError, require, unknown
from rmutils.core.experiment import Run
from rmutils.core.paths import CORPORA
from rmutils.core.results import Artifact, Compute
from rmutils.corpora.niah import load_needles
from rmutils.evaluation.abilities.ability_tasks import each_question_once
from rmutils.heads import DetectConfig
from rmutils.heads.detection import detect_stored
from rmutils.pipeline.retmask import RetMaskConfig, RetMaskRun
from rmutils.stats import DIFFERENCE, POINTS, SHARE, Contrast, Interval, interval

MODEL = "qwen2.5-coder-0.5b"
SEEDS = (1, 2)
CHOOSING, ASKED = 16, 32
"""Needles of a set that choose heads, and those that only masked or trained models are asked."""


def asked_needles() -> DetectConfig:
    """Return the 96 cases that are asked after training."""
    needles = load_needles(CORPORA["book"] / "facts-literal")[CHOOSING:CHOOSING + ASKED]
    return DetectConfig(lengths=(1024, 2048, 4096), depths=(0.5,), needles=tuple(needles),
                        max_new_tokens=32, corpus="book")  # also where weights are not stored


REAL_TRAINING = RetMaskExperiment(
    name="real-training", config=RetMaskConfig, plan="real_models",
    planned=lambda plan: [Run(MODEL, config) for config in planned_runs(MODEL)],
    keys=("config.strategy", "config.seed"), notebook="06_training_effect",
    parameter="compute_real")


def needles(trained: str | None = None, compute: Compute = "never") -> tuple[
        pd.DataFrame, Artifact]:
    """Return the asked needles' cases after a training, or of the untrained model."""
    scores, artifact = detect_stored(trained or MODEL, asked_needles(), compute=compute)
    return scores.cases, artifact


OUTCOMES: Mapping[str, Callable[[str | None, Compute], tuple[pd.DataFrame, Artifact]]] = {
    "needles": needles,
    "tasks": lambda trained, compute: tasks(MODEL, compute=compute, trained=trained),
    "abilities": lambda trained, compute: _samples(trained, compute),
}
"""What is asked after training, by name; of an untrained model if no training is named."""


def _samples(trained: str | None, compute: Compute) -> tuple[pd.DataFrame, Artifact]:
    result, artifact = abilities(MODEL, compute=compute, trained=trained)
    return result.samples, artifact


@dataclass(frozen=True)
class LostNeedle:
    """A needle, its question, and what each model answers."""

    needle: str
    question: str
    before: str
    after: str
    control: str


@dataclass(frozen=True)
class RealTraining:
    """What is stored of the plan."""

    runs: dict[tuple[str, int], RetMaskRun]  # (arm, seed) -> run
    outcomes: dict[tuple[str, str, int], pd.DataFrame]  # (outcome, arm or `before`, seed) -> table
    artifacts: list[Artifact]
    missing: list[str]  # commands that make the missing runs

    @property
    def pairs(self) -> list[tuple[RetMaskRun, RetMaskRun]]:
        """RetMask and its control, of the seeds that have both."""
        return [(self.runs[RETMASK, seed], self.runs[MATCHED, seed]) for seed in SEEDS
                if {(RETMASK, seed), (MATCHED, seed)} <= self.runs.keys()]

    def matched(self) -> LayerMatchedTraining:
        """Return the same comparisons as for SmolLM2."""
        return LayerMatchedTraining(self.pairs, len(SEEDS))

    def scores(self) -> pd.DataFrame:
        """Return the change of the mean score of the heads that RetMask masks."""
        rows = []
        for against in (MATCHED, BEFORE):
            tables = {str(own.artifact.manifest["config"]["seed"]): _case_scores(own, control,
                                                                               against)
                      for own, control in self.pairs}
            for seed, parts in ({"both": [*tables.values()]} | {
                    seed: [table] for seed, table in tables.items()}).items():
                rows.append({"against": against, "seed": seed, **difference(
                    parts, "score", "needle", bounds=DIFFERENCE).columns})
        return pd.DataFrame(rows)

    def answers(self) -> pd.DataFrame:
        """Return what RetMask changes in the answers."""
        rows = []
        for outcome, against in product(OUTCOMES, (MATCHED, BEFORE)):
            tables = {}
            for seed in SEEDS:
                other = (outcome, against, 0 if against == BEFORE else seed)
                if {other, (outcome, RETMASK, seed)} <= self.outcomes.keys():
                    tables[str(seed)] = (self.outcomes[outcome, RETMASK, seed],
                                         self.outcomes[other])
            if not tables:
                continue
            for seed, parts in ({"both": [*tables.values()]} | {
                    seed: [table] for seed, table in tables.items()}).items():
                rows.append({"outcome": outcome, "against": against, "seed": seed,
                             **_compared(outcome, parts).columns})
        return pd.DataFrame(rows)


    def first_lost(self) -> LostNeedle | None:
        """Return the first needle that is found before training and missed after RetMask."""
        arms = (BEFORE, 0), (RETMASK, SEEDS[0]), (MATCHED, SEEDS[0])
        tables = [self.outcomes["needles", *arm] for arm in arms]
        before, after, _ = tables
        gone = before["success"].to_numpy(bool) & ~after["success"].to_numpy(bool)
        if not gone.any():
            return None
        place = int(gone.argmax())
        needle = asked_needles().needles[before["needle"].iloc[place]]
        return LostNeedle(needle.needle, needle.question,
                          *(table["response"].iloc[place] for table in tables))

    def levels(self) -> pd.DataFrame:
        """Return what each model reaches, arm by arm and seed by seed."""
        rows = []
        for own, control in self.pairs:
            seed = own.artifact.manifest["config"]["seed"]
            for arm, scores in ((BEFORE, own.before), (MATCHED, control.after),
                                (RETMASK, own.after)):
                found = success_of(scores)
                rows.append(("copy score of the masked heads", arm, seed, *interval(
                    mean_in_cases(scores, own.heads, found),
                    scores.cases["needle"].to_numpy()[found], bounds=SHARE)))
        for (outcome, arm, seed), table in self.outcomes.items():
            value, cluster, stratum = _COLUMNS[outcome]
            table = each_question_once(table, task=stratum) if stratum else table
            found = 100.0 * table[value] if table[value].dtype == bool else table[value]
            rows.append((UNITS[outcome], arm, seed, *interval(
                found, table[cluster], table[stratum] if stratum else None, bounds=POINTS)))
        table = pd.DataFrame(rows, columns=["outcome", "arm", "seed", "value", "low", "high"])
        table["arm"] = table["arm"].map(NAMES)
        trained = table["arm"] != NAMES[BEFORE]
        table.loc[~trained, "seed"] = 0
        return table.drop_duplicates(["outcome", "arm", "seed"])


UNITS = {"needles": "needles found, %", "tasks": "tasks, points",
         "abilities": "general abilities, points"}
_COLUMNS = {"needles": ("success", "needle", None), "tasks": ("score", "sample", "dataset"),
            "abilities": ("score", "sample", "task")}
"""Values, what is drawn together, and strata of the outcomes' tables."""
NAMES = {BEFORE: "before training", MATCHED: "other heads masked", RETMASK: "RetMask"}


def _case_scores(own: RetMaskRun, control: RetMaskRun,
                 against: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return `needle` and `score` in the cases that both models answer."""
    other = control.after if against == MATCHED else own.before
    solved = success_of(own.after) & success_of(other)
    cases = own.after.cases[["needle"]][solved]
    return tuple(cases.assign(score=mean_in_cases(scores, own.heads, solved))
                 for scores in (own.after, other))


def _compared(outcome: str, parts: list[tuple[pd.DataFrame, pd.DataFrame]]) -> Contrast:
    value, cluster, stratum = _COLUMNS[outcome]
    found = [tuple(table.assign(**{value: 100.0 * table[value]}) for table in pair)
             if value == "success" else pair for pair in parts]
    return difference(found, value, cluster, stratum)


def real_training(compute: Compute = "never") -> RealTraining:
    """Collect what is stored, and make what is missing unless `compute="never"`."""
    found, outcomes = REAL_TRAINING.collect(compute=compute), {}
    artifacts = found.artifacts
    trainings = [(BEFORE, 0, None), *((arm, seed, run.training)
                                      for (arm, seed), run in found.stored.items())]
    for outcome, (arm, seed, trained) in product(OUTCOMES, trainings):
        try:
            outcomes[outcome, arm, seed], artifact = OUTCOMES[outcome](trained, compute)
        except NotStored:
            continue
        artifacts.append(artifact)
    return RealTraining(found.stored, outcomes, artifacts, [*found.missing.values()])


TRAINED = LARGER_MODELS
"""Models on whose runs claims rest; they are few, so intervals are not over seeds."""


@cache
def _collected() -> RealTraining:
    """What is stored of the training, read once."""
    return real_training()


def trained(model: str) -> RealTraining:
    """Return the runs and what was asked after them."""
    found = _collected()
    if len(found.pairs) < len(SEEDS):
        require(found.missing[:1])
    return found


def masked_heads_beyond(model: str, strategy: str) -> Effect:
    """Score of the masked heads after RetMask minus that after its control, as planned."""
    found, against = trained(model), _arm(strategy)
    row = found.scores().set_index(["against", "seed"]).loc[(against, "both")]
    return effect_over_seeds(Interval(*row[["value", "low", "high"]]), "score", found,
                             found.pairs[0][0].before.cases["needle"].nunique())


def outcome_by_seed(model: str, outcome: str, strategy: str,
                    base: str) -> list[tuple[pd.DataFrame, pd.DataFrame]]:
    """Tables of both models, a pair for each seed."""
    found = trained(model).outcomes
    keys = [[(outcome, _arm(arm), 0 if arm == BEFORE else seed) for arm in (strategy, base)]
            for seed in SEEDS]
    if any(key not in found for pair in keys for key in pair):
        require([REAL_TRAINING.command])
    return [(found[one], found[other]) for one, other in keys]


def _arm(strategy: str) -> str:
    arms = (BEFORE, RETMASK, MATCHED)
    if strategy not in arms:
        raise UserError(unknown(f"strategy {strategy!r} in the plan of larger models", arms))
    return strategy


def effect_over_seeds(found: Interval, unit: str, training: RealTraining, clusters: int,
                      over: str = "", blind: str = "") -> Effect:
    """Say over what it is: two seeds do not tell how much training runs differ."""
    cases = "needles" if unit == "score" else "questions"
    return Effect.of(found, unit, training.artifacts, clusters,
                     f"{over}{len(SEEDS)} seeds, interval over {cases}", blind)
