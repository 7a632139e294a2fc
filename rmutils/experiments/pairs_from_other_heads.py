"""RetMask with heads by another score: do they make better pairs than those by copy score?

`rmutils run which_heads -p compute_pairs auto` makes the missing runs of
`data/plans/pairs_from_other_heads.yml` in the plan's order.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import pandas as pd

from rmutils.core.errors import NotStored
from rmutils.core.results import Artifact, Compute
from rmutils.experiments.snapshots import MATCHED, RETMASK
from rmutils.heads.detection import detect_stored
from rmutils.heads.scores import DECIMALS, Head
from rmutils.pipeline.planned_runs import Plan, planned_runs
from rmutils.pipeline.retmask import RetMaskConfig, RetMaskRun, run_retmask
from rmutils.stats import DIFFERENCE, holm, interval, sign_flip_test

Key = tuple[str, str, int]
"""Score, strategy, seed."""


@dataclass(frozen=True)
class PairsFromOtherHeads:
    """The stored runs of the plan.

    Attributes
    ----------
    runs : dict
        (score, strategy, seed) -> RetMaskRun.
    planned : int
    """

    runs: dict[Key, RetMaskRun]
    planned: int

    @property
    def artifacts(self) -> list[Artifact]:
        """The results that were read."""
        return [run.artifact for run in self.runs.values()]

    def heads(self) -> dict[str, list[Head]]:
        """The heads that RetMask masks, by score."""
        return {score: sorted(run.heads) for (score, strategy, _), run in self.runs.items()
                if strategy == RETMASK}

    def in_common(self) -> dict[str, int]:
        """How many of the heads by another score are among those by copy score."""
        by_score = self.heads()
        return {f"{one} and {other}": len({*by_score[one]} & {*by_score[other]})
                for one, other in combinations(by_score, 2)}

    def needles(self) -> pd.DataFrame:
        """Needles found after a training, minus those after another one of the same seed.

        Returns
        -------
        DataFrame
            `primary` (whether the plan's test decides by it), `this`, `other` (score and strategy),
            `seeds`, `value`, `low`, `high` (share of the cases), `p`, corrected by Holm over the
            primary comparisons; not given for others.
        """
        scores = list(self.heads())
        asked = [(True, (score, RETMASK), (scores[0], RETMASK)) for score in scores[1:]]
        asked += [(False, (score, RETMASK), (score, MATCHED)) for score in scores]
        rows = []
        for primary, this, other in asked:
            seeds = sorted(seed for *arm, seed in self.runs if tuple(arm) == this
                           and (*other, seed) in self.runs)
            if not seeds:
                continue
            gained = np.stack([_found(self.runs[*this, seed]) - _found(self.runs[*other, seed])
                               for seed in seeds], axis=1)
            needles = self.runs[*this, seeds[0]].after.cases["needle"].to_numpy()
            found = interval(gained, needles, seeds=True, bounds=DIFFERENCE)
            rows.append({"primary": primary, "this": this, "other": other, "seeds": len(seeds),
                         **found._asdict(), "p": sign_flip_test(gained, needles)})
        table = pd.DataFrame(rows)
        if len(table):
            table["p"] = holm(table["p"].where(table["primary"]))
        return table


def _found(run: RetMaskRun) -> np.ndarray:
    """(cases,): 1 where the trained model finds the needle."""
    return run.after.cases["success"].to_numpy(float)


def threshold(model: str, config: RetMaskConfig, score: str) -> float:
    """Return the tau that as many heads reach by a score as reach the run's by copy score."""
    copy, _ = detect_stored(model, config.detect)
    other, _ = detect_stored(model, config.detect.changed({"score": score}))
    last = other.select(top_k=len(copy.select(tau=config.tau)))[-1]
    return float(other.mean[last].round(DECIMALS))


def planned(plan: Plan) -> list[RetMaskConfig]:
    """Return the configurations of all runs, in the order in which they are made."""
    p = plan.content
    base = planned_runs(p["model"])[0].changed({"tau": p["tau"]})
    taus = {score: threshold(p["model"], base, score) for score in p["scores"][1:]}
    by_score = {score: base if score == "copy" else base.changed(
        {"detect.score": score, "tau": taus[score]}) for score in p["scores"]}
    return [by_score[score].changed({"strategy": strategy, "seed": seed})
            for strategy, score, seed in product(p["arms"], p["scores"], p["seeds"])]


def pairs_from_other_heads(plan: Plan, *, compute: Compute = "never") -> PairsFromOtherHeads:
    """Collect the stored runs, and make the missing ones unless `compute="never"`."""
    found, configs = {}, planned(plan)
    for config in configs:
        try:
            found[config.detect.score, config.strategy, config.seed] = run_retmask(
                plan.content["model"], config, compute=compute)
        except NotStored:
            continue
    return PairsFromOtherHeads(found, len(configs))
