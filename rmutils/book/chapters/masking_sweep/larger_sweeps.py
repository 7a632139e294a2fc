"""The sweep of three real models with questions enough for the claims of appendix B."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmutils.book.chapters.masking_sweep.experiment import (
    CHAPTER,
    Sweep,
    SweepConfig,
    scored,
    sweep,
)
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
        yield Run(model, SweepConfig(counts=tuple(p["counts"][model]), taus=(p["tau"],),
                                     policies=tuple(p["policies"]), **p["questions"]))


def _inputs(run: Run) -> dict[str, str]:
    ref, (scores, *_) = ModelRef(run.model), detection_of(run.model)
    return inputs_of(ref.identity, run.config.grid, ref.corpus) | {
        "scores": digest(scores.mean.round(DECIMALS).tolist())}


def _make(run: Run, folder: Path) -> dict[str, Any]:
    found = sweep(ModelRef(run.model).load(), detection_of(run.model)[0], run.config,
                  journal=folder / JOURNAL)
    write_tables(found, folder)
    return {"answers": len(found.answers), "speech": len(found.speech)}


LARGER_SWEEPS = Experiment[Run, Artifact](
    name="larger-sweep", config=SweepConfig, plan="larger_sweeps", planned=_planned,
    keys=("model",), make=_make, inputs=_inputs, notebook=CHAPTER, parameter="compute_larger")


def larger_sweep(model: str) -> tuple[Sweep, HeadScores, Artifact]:
    """Read a stored sweep, with the scores by which its heads were masked."""
    artifact = LARGER_SWEEPS.obtain(LARGER_SWEEPS.runs()[model,], compute="never")
    return Sweep(**read_tables(artifact.folder)), detection_of(model)[0], artifact
