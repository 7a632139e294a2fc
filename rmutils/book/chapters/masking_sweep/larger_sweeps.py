"""The sweep of three real models with questions enough for the claims of appendix B."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from rmutils.book.chapters.masking_sweep import experiment
from rmutils.book.chapters.masking_sweep.experiment import scored, sweep
from rmutils.book.experiments.real_models import detection, real_models
from rmutils.core.config import digest
from rmutils.core.experiment import Experiment, Plan, Run
from rmutils.core.results import JOURNAL, Artifact, Compute, read_tables, write_tables
from rmutils.heads.detection import detect_stored, inputs_of
from rmutils.heads.scores import DECIMALS, HeadScores
from rmutils.models.known_models import tau_of
from rmutils.models.loading import ModelRef

BY_PLAN = ("gemma3-270m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")
"""The models of the plan of real models on which the book has no other detection with a claim."""


def detection_of(model: str, compute: Compute = "never") -> tuple[HeadScores, Artifact, float]:
    """Return the scores that claims about a model's heads rest on, and the threshold."""
    if model not in BY_PLAN:
        return *scored(model, compute=compute), tau_of(model)
    return *detect_stored(model, detection(), compute=compute), real_models().content["tau"]


def _planned(plan: Plan) -> Iterator[Run]:
    p = plan.content
    for model in p["models"]:
        yield Run(model, experiment.SweepConfig(counts=tuple(p["counts"][model]), taus=(p["tau"],),
                                     policies=tuple(p["policies"]), **p["questions"]))


def _inputs(run: Run) -> dict[str, str]:
    ref, (scores, *_) = ModelRef(run.model), detection_of(run.model)
    return inputs_of(ref.identity, run.config.grid, ref.corpus) | {
        "scores": digest(scores.mean.round(DECIMALS).tolist())}


def _make(run: Run, folder: Path) -> dict[str, Any]:
    lm = ModelRef(run.model).load()
    if not lm.tokenizer.chat_template:
        write_tables({"screening": pd.DataFrame({"task": []})}, folder)  # no result without a file
        return {"left_out": f"{run.model} has no chat template; a sweep asks in turns of a chat."}
    found = sweep(lm, detection_of(run.model)[0], run.config, journal=folder / JOURNAL)
    write_tables(found, folder)
    return {"answers": len(found.answers), "speech": len(found.speech)}


LARGER_SWEEPS = Experiment[Run, Artifact](
    name="larger-sweep", config=experiment.SweepConfig, plan="larger_sweeps", planned=_planned,
    keys=("model",), make=_make, inputs=_inputs, notebook=experiment.CHAPTER,
    parameter="compute_larger")


LLAMA_HEADS = 1024  # of which appendix B masks 30 to 50, and more than 60


@dataclass(frozen=True)
class LargerSweep:
    """A stored sweep, and the scores by which heads were masked."""

    sweep: experiment.Sweep
    scores: HeadScores
    at_tau: int  # how many heads reach the threshold of the plan
    artifact: Artifact

    @property
    def counts(self) -> list[int]:
        """Numbers of highest heads that were masked, rising."""
        masked = self.sweep.answers["policy"] == "retrieval"
        return sorted(self.sweep.answers.loc[masked, "count"].unique())

    def nearest(self, heads: int) -> int:
        """Return the number that is nearest to a share of Llama's heads."""
        wanted = heads / LLAMA_HEADS * self.scores.mean.size
        return min(self.counts, key=lambda count: abs(count - wanted))


def larger_sweep(model: str) -> LargerSweep:
    """Read the stored sweep of a model of the plan."""
    run = LARGER_SWEEPS.runs()[model,]
    artifact, scores = LARGER_SWEEPS.obtain(run, compute="never"), detection_of(model)[0]
    return LargerSweep(experiment.Sweep(**read_tables(artifact.folder)), scores,
                       experiment.count_at(scores, run.config.taus[0]), artifact)
