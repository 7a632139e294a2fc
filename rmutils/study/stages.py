"""What the jobs of a study do: they call the functions of the commands, and compute nothing anew.

All of these keep their results and go on after a kill by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rmutils.artifacts import Artifact, Compute, find
from rmutils.contrast.drawing import draw_stored
from rmutils.contrast.responses import respond_stored
from rmutils.contrast.strategies import sides
from rmutils.errors import NotStored
from rmutils.evaluation.designs import design_stored, designs
from rmutils.evaluation.general.abilities import GeneralConfig
from rmutils.evaluation.general.mt_bench import MTBenchRun
from rmutils.evaluation.general.store import evaluate_general_stored
from rmutils.evaluation.longcontext import EvaluateConfig, evaluate_stored
from rmutils.evaluation.official import official_stored
from rmutils.heads.store import detect_stored, load
from rmutils.models import identify, load_model
from rmutils.models.hub import fetch_hub
from rmutils.study.plan import Job
from rmutils.training.again import train_again
from rmutils.training.pairing import contrasted, heads_of, masked_heads
from rmutils.training.retmask import command_of, run_retmask

Record = dict[str, Any]
"""What a job leaves: `artifacts` (names of stored results), and what later jobs need of it."""


def fetch(job: Job, before: Record, compute: Compute, workers: int) -> Record:
    from rmutils.cli.models import fetch_model
    from rmutils.models import REGISTRY

    if job.model in REGISTRY:
        fetch_model(job.model, None, False)
    elif not Path(job.model).exists():
        fetch_hub(job.model)
    return {"identity": identify(job.model)}


def detect(job: Job, before: Record, compute: Compute, workers: int) -> Record:
    return _told(detect_stored(job.model, job.run.detect, compute=compute)[1])


def mask(job: Job, before: Record, compute: Compute, workers: int) -> Record:
    """From the detection before it, whose key tells the precision: on a node without a GPU, where
    this may run, that of the model would be another one."""
    author = job.run.synthesizer or job.model
    detected = [found for name in before.get("artifacts", ()) if (found := find(name))]
    if not detected:
        return {"heads": masked_heads(author, job.run)}
    return {"heads": heads_of(load(detected[0].folder, author), job.run)}


def generate(job: Job, before: Record, compute: Compute, workers: int) -> Record:
    run, author = job.run, job.run.synthesizer or job.model
    writer = load_model(author)
    drawn, _ = draw_stored(run.source, run.instructions, seed=run.seed, lm=writer)
    who = run.smaller if run.smaller and job.side else author
    if who != author:
        writer.model.to("cpu")  # the one that answers wants the GPU
    config = sides(run.strategy, run.responses.changed({"seed": run.seed}),
                   [tuple(head) for head in before.get("heads", ())])[job.side]
    backend = job.means.backend(writer if who == author else load_model(who), who, workers)
    return _told(respond_stored(backend, drawn.instructions, config, compute=compute,
                                command=command_of(job.model, run, job.means))[1])


def pairs(job: Job, before: Record, compute: Compute, workers: int) -> Record:
    author = job.run.synthesizer or job.model
    heads = [tuple(head) for head in before.get("heads", ())]
    found, made = contrasted(author, load_model(author), job.run, heads, compute=compute,
                             workers=workers, command=command_of(job.model, job.run, job.means),
                             means=job.means)
    return _told(*made) | {"pairs": len(found.table), "dropped": found.dropped}


def train(job: Job, before: Record, compute: Compute, workers: int) -> Record:
    run = run_retmask(job.model, job.run, compute=compute, workers=workers, means=job.means)
    return _told(run.artifact) | {"training": run.training}


def evaluate(job: Job, before: Record, compute: Compute, workers: int) -> Record:
    """Weights that are stored nowhere, as those of shipped runs, are made anew first."""
    name = before["training"] if job.run else job.model
    try:
        return _told(_evaluated(job, name, "never", workers))
    except NotStored:
        if compute == "never":
            raise
    if job.run and find(name) is None:
        train_again(job.model, run_retmask(job.model, job.run, compute="never", means=job.means),
                    job.means)
    return _told(_evaluated(job, name, compute, workers))


def _evaluated(job: Job, name: str, compute: Compute, workers: int) -> Artifact:
    if isinstance(job.evaluation, EvaluateConfig):
        return evaluate_stored(name, job.evaluation, compute=compute, workers=workers)[1]
    if isinstance(job.evaluation, GeneralConfig):
        return evaluate_general_stored(name, job.evaluation, compute=compute,
                                       base=job.model if job.run else None,
                                       workers=workers)[1]
    if isinstance(job.evaluation, MTBenchRun):
        return job.evaluation.obtain(name, compute=compute)[1]
    return official_stored(name, job.evaluation, compute=compute)[1]


def design(job: Job, before: Record, compute: Compute, workers: int) -> Record:
    return _told(design_stored(designs()[job.model], compute=compute).artifact)


def _told(*artifacts: Artifact) -> Record:
    return {"artifacts": [artifact.name for artifact in artifacts]}


STAGES: dict[str, Callable[[Job, Record, Compute, int], Record]] = {
    "fetch": fetch, "detect": detect, "mask": mask, "generate": generate, "pairs": pairs,
    "train": train, "evaluate": evaluate, "design": design}
"""By name: a job, what the jobs before it told, `compute`, and the number of processes -> what is
to be told. Missing weights and instructions are made where they are needed, so that a record says
what is there, and nothing depends on a record being true."""
