"""The paper's main tables measured here: long contexts before and after every training."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from rmutils.book.experiments.planned_runs import BEFORE, planned_runs, stored_runs
from rmutils.core.errors import NotStored
from rmutils.core.results import Artifact
from rmutils.evaluation.helmet import EvaluateConfig, averages, evaluate_stored
from rmutils.evaluation.helmet.averages import OVERALL, samples_of
from rmutils.evaluation.helmet.evaluation import evaluation_command
from rmutils.evaluation.helmet.prompts import prompter_of, questions
from rmutils.evaluation.helmet.suite import DATASETS
from rmutils.models import load_model
from rmutils.models.language_model import counter
from rmutils.pipeline.retmask import RetMaskRun
from rmutils.preference.strategies import STRATEGIES
from rmutils.stats import MORE_POINTS, compare, holm


@dataclass(frozen=True)
class Evaluated:
    """The stored evaluations of a model."""

    model: str
    # `strategy` (`before`, or a key of `STRATEGIES`), `seed`, and the columns of `evaluate`; empty
    # if the model before training is missing.
    scores: pd.DataFrame
    artifacts: tuple[Artifact, ...]
    # A command line for each planned evaluation, or training, that is not stored.
    missing: tuple[str, ...]
    sizes: pd.DataFrame  # `strategy`, `pairs` and `steps` of each stored training

    @cached_property
    def samples(self) -> pd.DataFrame:
        """The samples of all evaluations, as for `compare`, with their `category`."""
        found = pd.concat([
            samples_of(part).assign(strategy=strategy, seed=seed)
            for (strategy, seed), part in self.scores.groupby(["strategy", "seed"], sort=False)])
        return found.assign(category=found["stratum"])

    def at_longest(self, strategy: str) -> "Evaluated":
        """Only a training and the model before it, on the longest texts."""
        rows = self.scores["strategy"].isin([BEFORE, strategy]) & (
            self.scores["length"] == self.scores["length"].max())
        return replace(self, scores=self.scores[rows])


def evaluated(model: str, config: EvaluateConfig,
              strategies: Iterable[str] = STRATEGIES) -> Evaluated:
    """Read what is stored of a model before training and after all its planned ones."""
    parts, artifacts, missing, sizes = [], [], [], []
    for strategy in (BEFORE, *strategies):
        names, lacking, runs = _planned(model, strategy)
        sizes += [(strategy, len(run.pairs), len(run.curve)) for run in runs]
        found = []
        for seed, name in names:
            try:
                table, artifact = evaluate_stored(name, config, compute="never")
                found.append((table.assign(strategy=strategy, seed=seed), artifact))
            except NotStored:
                lacking.append(evaluation_command(name, config))
        missing += lacking
        if names and not lacking:
            parts += [table for table, _ in found]
            artifacts += [artifact for _, artifact in found]
    scores = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    if parts and BEFORE not in set(scores["strategy"]):
        scores = scores[:0]
    return Evaluated(model, scores, tuple(artifacts), tuple(missing),
                     pd.DataFrame(sizes, columns=["strategy", "pairs", "steps"]))


def _planned(model: str,
             strategy: str) -> tuple[list[tuple[int, str]], list[str], list[RetMaskRun]]:
    """Seeds and names of the models to be evaluated, missing commands, and the runs there are."""
    if strategy == BEFORE:
        return [(0, model)], [], []
    runs, lacking = stored_runs(model, [c for c in planned_runs(model) if c.strategy == strategy])
    names = [(run.artifact.manifest["config"]["seed"], run.training) for run in runs]
    return names, lacking, runs


def levels(found: Evaluated) -> pd.DataFrame:
    """HELMET's averages of each strategy, at each length, mean over its seeds."""
    rows = [averages(part, resamples=0).assign(strategy=strategy, seed=seed)
            for (strategy, seed), part in found.scores.groupby(["strategy", "seed"], sort=False)]
    table = pd.concat(rows)
    table = table[table["level"].isin(["category", OVERALL])]
    keys = ["strategy", "length", "name"]
    return table.groupby(keys, sort=False, as_index=False).agg(
        value=("value", "mean"), missing=("missing", "first"))


def gains(found: Evaluated, by: Sequence[str] = (), base: str = BEFORE) -> pd.DataFrame:
    """Gains of each training over the model before it, in points of 0 to 100."""
    groups = found.samples.groupby([*by], sort=False) if by else [((), found.samples)]
    return pd.concat([
        compare(part, base, bounds=MORE_POINTS).assign(**dict(zip(by, key, strict=True)))
        for key, part in groups], ignore_index=True)


def contrasts(found: Evaluated, by: Sequence[str] = ()) -> pd.DataFrame:
    """Points by which RetMask gains more than each other one, seed by seed."""
    after = found.scores[found.scores["strategy"] != BEFORE] if len(found.scores) else found.scores
    if after.empty or "retmask" not in set(after["strategy"]) or after["strategy"].nunique() < 2:
        return pd.DataFrame()
    table = gains(replace(found, scores=after), by, base="retmask")
    return table.assign(effect=-table["effect"], low=-table["high"], high=-table["low"])


def able_to_differ(table: pd.DataFrame, blind: Collection[str]) -> pd.DataFrame:
    """Keep the categories of `contrasts` that could show a difference, `p_holm` over these."""
    few = table.loc[table["p"].isna(), "category"]
    kept = table[~table["category"].isin({*few, *blind})]
    return kept.assign(p_holm=holm(kept["p"]))


@dataclass(frozen=True)
class ChangedAnswer:
    """A question whose answer is better or worse after a training."""

    support: str  # the sentences of its text from which the answer follows
    question: str
    golds: tuple[str, ...]
    length: int  # tokens of its text
    answers: dict[str, str]  # strategy -> answer of its first run
    better: int  # answers to all questions that score more after RetMask, and less
    worse: int
    all: int


def first_changed(found: Evaluated, config: EvaluateConfig, dataset: str) -> ChangedAnswer:
    """Return the first question of a data set whose score RetMask changes, of its first seed."""
    keys = ["dataset", "length", "sample"]
    seed = found.scores.loc[found.scores["strategy"] == "retmask", "seed"].min()
    own = found.scores[found.scores["seed"].eq(seed) | found.scores["strategy"].eq(BEFORE)]
    score = own.groupby([*keys, "strategy"], sort=False)["score"].mean().unstack()  # over metrics
    change = score["retmask"] - score[BEFORE]
    _, length, sample = next(key for key in change.index
                                if key[0] == dataset and change[key] != 0)
    lm = load_model(found.model)
    asked = questions(prompter_of(lm, DATASETS[dataset], length, config, counter(lm)), sample + 1)
    question = asked[sample].question
    answers = own[(own["dataset"] == dataset) & (own["length"] == length) & (
        own["sample"] == sample)].drop_duplicates("strategy").set_index("strategy")["response"]
    return ChangedAnswer(" ".join(question.support), question.after.strip(), question.golds,
                         length, answers.to_dict(), int((change > 0).sum()),
                         int((change < 0).sum()), len(change))
