"""Masked or merely copying? Half of SmolLM2's retrieval heads are masked, half watched."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt
import pandas as pd

from rmutils.book.experiments.planned_runs import RETMASK, RetMaskExperiment, planned_runs
from rmutils.book.findings import AGAINST, SHOWN, UNDECIDED, Verdict
from rmutils.core.experiment import Plan, Run
from rmutils.core.results import Artifact, Compute
from rmutils.heads.scores import Head, HeadScores
from rmutils.pipeline.retmask import RetMaskConfig, RetMaskRun, run_retmask
from rmutils.stats import DIFFERENCE, LEVEL, Interval, contrast

Array = npt.NDArray[np.float64]
SEED = 1  # seed of the instructions and the chosen answers, which are stored
MASKED, UNMASKED, BEYOND, OTHER = "masked half", "other half", "masked minus other", "other heads"


@dataclass(frozen=True)
class HalfMasked:
    """The stored runs of the plan, of splits that have both halves."""

    whole: RetMaskRun  # the stored run that masks all retrieval heads
    # Split -> the run that masks half a, and the one that masks half b.
    runs: dict[int, tuple[RetMaskRun, RetMaskRun]]
    planned: int  # splits of the plan
    missing: list[str]  # the commands of the runs that are missing

    @property
    def artifacts(self) -> list[Artifact]:
        """The results that were read."""
        return [self.whole.artifact, *(run.artifact for pair in self.runs.values() for run in pair)]

    @property
    def machines(self) -> int:
        """On how many machines the runs were made."""
        return len({run.artifact.manifest["environment"]["hardware"]
                    for pair in self.runs.values() for run in pair})

    def rises(self) -> pd.DataFrame:
        """Return the rises of groups of heads, in cases that all models answer."""
        before, solved = self.whole.before, self._solved()
        needles = before.cases["needle"].to_numpy()[solved]
        parts: dict[str, list[Array]] = {MASKED: [], UNMASKED: [], OTHER: []}
        for pair in self.runs.values():
            for name, heads_of in self._groups().items():
                parts[name].append(np.mean([rise(before, run.after, heads_of(run), solved)
                                            for run in pair], axis=0))
        tables = {name: np.stack(of_splits, axis=1) for name, of_splits in parts.items()}
        tables[BEYOND] = tables[MASKED] - tables[UNMASKED]
        return pd.DataFrame([{
            "what": name, **contrast(table, needles, bounds=DIFFERENCE).columns}
            for name, table in tables.items()])

    def by_run(self) -> pd.DataFrame:
        """Return the same rises run by run: `split`, `half`, and a column for each group."""
        before, solved = self.whole.before, self._solved()
        return pd.DataFrame([{"split": split, "half": half, **{
            name: rise(before, run.after, heads_of(run), solved).mean()
            for name, heads_of in self._groups().items()}}
            for split, pair in self.runs.items() for half, run in zip("ab", pair, strict=True)])

    def _solved(self) -> npt.NDArray[np.bool_]:
        """Mark the cases that all models answer."""
        return np.all([success_of(self.whole.before), *(
            success_of(run.after) for pair in self.runs.values() for run in pair)], axis=0)

    def _groups(self):
        every = {*self.whole.heads}
        layers, width = self.whole.before.shape
        others = {(i, j) for i in range(layers) for j in range(width)} - every
        return {MASKED: lambda run: run.heads, UNMASKED: lambda run: every - {*run.heads},
                OTHER: lambda run: others}


def success_of(scores: HeadScores) -> npt.NDArray[np.bool_]:
    """(cases,): True where the needle was found."""
    return scores.cases["success"].to_numpy(bool)


def mean_in_cases(scores: HeadScores, heads: Collection[Head],
                  cases: npt.NDArray[np.bool_]) -> Array:
    """Mean score of some heads in each of some cases, all of which are successful: (cases,)."""
    layers, index = np.array(sorted(heads)).T
    of_heads = scores.runs[cases[success_of(scores)]][:, layers, index]
    return np.asarray(of_heads.mean(1))


def rise(before: HeadScores, after: HeadScores, heads: Collection[Head],
         cases: npt.NDArray[np.bool_]) -> Array:
    """Rise of the mean score of some heads in each of some cases: (cases,)."""
    return mean_in_cases(after, heads, cases) - mean_in_cases(before, heads, cases)


def planned(plan: Plan) -> list[Run]:
    """Return all runs in the order in which they are made."""
    p = plan.content
    base = planned_runs(p["model"])[0].changed({"strategy": RETMASK, "seed": SEED})
    return [Run(p["model"], base.changed({"half": f"{split}{half}"}))
            for split, half in product(p["splits"], p["halves"])]


HALF_MASKED = RetMaskExperiment(
    name="half-masked", config=RetMaskConfig, plan="half_masked", planned=planned,
    keys=("config.half",), notebook="06_training_effect", parameter="compute_half_masked")


def half_masked(*, compute: Compute = "never") -> HalfMasked:
    """Collect the stored runs, and make the missing ones unless `compute="never"`."""
    runs = HALF_MASKED.collect(compute=compute)
    model, config = next(iter(runs.planned.values()))
    splits = [*dict.fromkeys(half[:-1] for half, in runs.planned)]
    pairs = {int(split): tuple(runs.stored[f"{split}{side}",] for side in "ab") for split in splits
             if {(f"{split}a",), (f"{split}b",)} <= runs.stored.keys()}
    whole = run_retmask(model, config.changed({"half": None}), compute="never")
    return HalfMasked(whole, pairs, len(splits), [*runs.missing.values()])


def verdict(beyond: Interval, p: float, masked: float) -> Verdict:
    """Apply the rule of the plan: masked heads rise more, or heads that copy rise either way."""
    if p < 1 - LEVEL and beyond.low > 0:
        return SHOWN
    return AGAINST if beyond.low <= 0 and beyond.high < masked / 2 else UNDECIDED
