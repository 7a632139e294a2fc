"""RetMask with heads by another score: do they make better pairs than those by copy score?"""

from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rmutils.book.experiments.planned_runs import MATCHED, RETMASK, planned_runs
from rmutils.core.experiment import Experiment, Plan, Run
from rmutils.core.results import JOURNAL, Artifact, Compute
from rmutils.heads import HeadScores, detect, head_change
from rmutils.heads.detection import detect_stored, inputs_of, load, save
from rmutils.heads.scores import DECIMALS, Head
from rmutils.models import identify
from rmutils.models.loading import corpus_of
from rmutils.pipeline.retmask import RetMaskConfig, RetMaskSteps, run_retmask
from rmutils.preference.strategies import STRATEGIES
from rmutils.stats import DIFFERENCE, Interval, contrast, holm
from rmutils.training.compute_backend import ComputeBackend

COPY = "copy"


@dataclass(frozen=True)
class Training:
    """A trained model's copy scores, the heads that were masked for it, and where both are kept."""

    after: HeadScores
    heads: list[Head]
    artifact: Artifact

    @property
    def machine(self) -> str:
        """That of the last step, the detection after the training: a manifest knows no other."""
        return str(self.artifact.manifest["environment"]["hardware"])


@dataclass(frozen=True)
class PairsFromOtherHeads:
    """The stored training runs of the plan."""

    before: HeadScores  # copy scores of the untrained model
    trainings: dict[tuple[str, str, int], Training]  # (score, strategy, seed) -> Training
    # `planned`, `comparisons`: Training runs and primary comparisons of the plan.
    planned: int
    comparisons: int
    deviations: list[str]  # what is not as the plan says

    @property
    def artifacts(self) -> list[Artifact]:
        """The results that were read."""
        return [training.artifact for training in self.trainings.values()]

    @property
    def repeated(self) -> list[Artifact]:
        """Those of RetMask by copy score."""
        return [one.artifact for one in self.by_copy]

    def heads(self) -> dict[str, list[Head]]:
        """The heads that RetMask masks, by score."""
        return {score: training.heads for (score, strategy, _), training in self.trainings.items()
                if strategy == RETMASK}

    def in_common(self) -> dict[tuple[str, str], int]:
        """How many heads two scores have in common."""
        by_score = self.heads()
        return {(one, other): len({*by_score[one]} & {*by_score[other]})
                for one, other in combinations(by_score, 2)}

    def by_seed(self) -> pd.DataFrame:
        """Needles found after each training, of 100."""
        rows: dict[tuple[str, str], dict[str, float]] = {}
        for (score, strategy, seed), training in self.trainings.items():
            masked = "these" if strategy == RETMASK else "others of their layers"
            rows.setdefault((score, masked), {})[f"seed {seed}"] = 100 * _found(training).mean()
        return pd.DataFrame([{"heads by": score, "masked": masked, **found}
                             for (score, masked), found in rows.items()])

    def needles(self) -> pd.DataFrame:
        """Needles found after a training, minus those after another one with the same seed."""
        scores = list(self.heads())
        asked = [(True, (score, RETMASK), (COPY, RETMASK)) for score in scores if score != COPY]
        asked += [(False, (score, RETMASK), (score, MATCHED)) for score in scores]
        rows = []
        for primary, this, other in asked:
            seeds = sorted(seed for *arm, seed in self.trainings
                           if tuple(arm) == this and (*other, seed) in self.trainings)
            if not seeds:
                continue
            gained = np.stack([_found(self.trainings[*this, seed])
                               - _found(self.trainings[*other, seed]) for seed in seeds], axis=1)
            needles = self.trainings[*this, seeds[0]].after.cases["needle"].to_numpy()
            change = contrast(gained, needles, bounds=DIFFERENCE)
            rows.append({"primary": primary, "this": this, "other": other, "seeds": len(seeds),
                         "apart": sum(self.trainings[*this, seed].machine
                                      != self.trainings[*other, seed].machine for seed in seeds),
                         **change.columns})
        table = pd.DataFrame(rows, columns=["primary", "this", "other", "seeds", "apart", "value",
                                            "low", "high", "p"])
        decided = table["primary"].astype(bool)
        table["p"] = pd.Series(holm(table.loc[decided, "p"], self.comparisons),
                               table.index[decided])
        return table

    @property
    def by_copy(self) -> list[Training]:
        """RetMask by copy score, seed by seed."""
        return [one for (*arm, _), one in self.trainings.items() if arm == [COPY, RETMASK]]

    def again(self) -> tuple[Interval, Interval]:
        """What RetMask by copy score changes: the masked heads' scores, and needles found."""
        pairs = [head_change.PairedDetection(self.before, one.after, one.heads) for one
                 in self.by_copy]
        effects = pd.concat([head_change.training_effect(pairs, cases="both"),
                             head_change.needles_found(pairs)])
        rows = effects.query("quantity == 'change'").set_index("group")
        score, found = (Interval(*rows.loc[group, ["value", "low", "high"]])
                        for group in (head_change.RETRIEVAL, head_change.FOUND))
        return score, found


def _found(training: Training) -> np.ndarray:
    """(cases,): 1 where the trained model finds the needle."""
    found: np.ndarray = training.after.cases["success"].to_numpy(float)
    return found


def planned(plan: Plan) -> list[Run]:
    """Return all runs in the order in which they are made."""
    p = plan.content
    base = planned_runs(p["model"])[0].changed({"tau": p["tau"]})
    count = len(detect_stored(p["model"], base.detect)[0].select(tau=base.tau))
    by_score = {}
    for score in p["scores"]:
        scores, _ = detect_stored(p["model"], base.detect.changed({"score": score}))
        tau = float(scores.mean[scores.select(top_k=count)[-1]].round(DECIMALS))
        by_score[score] = base if score == COPY else base.changed(
            {"detect.score": score, "tau": tau})
    return [Run(p["model"], by_score[score].changed({"strategy": strategy, "seed": seed}))
            for strategy, score, seed in product(p["arms"], p["scores"], p["seeds"])]


def _make(run: Run, folder: Path) -> dict[str, Any]:
    """Train on pairs from the heads of a score, and write the detection by copy score."""
    steps = RetMaskSteps(run.model, run.config, ComputeBackend())
    heads = steps.mask()
    lm, training = steps.train(steps.pair(heads)[0].table)
    save(detect(lm, run.config.detect.changed({"score": COPY}), journal=folder / JOURNAL), folder)
    return {"heads": heads, "training": training.key}


class _OtherPairs(Experiment[Run, Training]):
    """Runs by copy score are those of `rmutils retmask`."""

    def obtain(self, run: Run, *, compute: Compute = "auto") -> Training:
        if run.config.detect.score == COPY:
            own = run_retmask(*run, compute=compute)
            return Training(own.after, own.heads, own.artifact)
        artifact: Any = super().obtain(run, compute=compute)
        return Training(load(artifact.folder, run.model), [
            tuple(head) for head in artifact.manifest["facts"]["heads"]], artifact)

    def deviations(self, artifacts: list[Artifact]) -> list[str]:
        return super().deviations([one for one in artifacts if one.stage == self.name])


OTHER_PAIRS = _OtherPairs(
    name="other-pairs", config=RetMaskConfig, plan="pairs_from_other_heads", planned=planned,
    keys=("config.detect.score", "config.strategy", "config.seed"), make=_make,
    inputs=lambda run: inputs_of(identify(run.model), run.config.detect, corpus_of(run.model)),
    label=lambda run: f"{run.config.detect.score}-{run.config.strategy}-seed{run.config.seed}",
    notebook="which_heads", parameter="compute_pairs")


def pairs_from_other_heads(*, compute: Compute = "never") -> PairsFromOtherHeads:
    """Collect the stored trainings, and make the missing ones unless `compute="never"`."""
    runs = OTHER_PAIRS.collect(compute=compute)
    model, config = next(iter(runs.planned.values()))
    scores = {score for score, *_ in runs.planned}
    return PairsFromOtherHeads(detect_stored(model, config.detect)[0], runs.stored,
                               len(runs.planned), len(scores) - 1,
                               [*runs.deviations, *_made_elsewhere(runs.stored)])


def _made_elsewhere(trainings: dict[tuple[str, str, int], Training]) -> list[str]:
    """Say which results were sealed on another machine than the first."""
    made = {key: one.machine for key, one in trainings.items()}
    first, seeds = next(iter(made.values()), ""), defaultdict(list)
    for (score, strategy, seed), machine in made.items():
        if machine != first:
            seeds[f"{STRATEGIES[strategy].name} by {score}"].append(str(seed))
    listed = "; ".join(f"{arm}, seeds {', '.join(of)}" for arm, of in seeds.items())
    return [f"The plan has one machine for all. By their manifests, at least the last step (the "
            f"detection after the training) was made on another: {listed}."] if listed else []
