"""What a job asks of a cluster. A profile's `set-resources` and `set-threads` change it there."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rmutils.config import Config
from rmutils.models import REGISTRY
from rmutils.training.means import Means

Count = Annotated[int, Field(ge=0)]


class Resources(Config):
    """Of one job."""

    threads: Count = 1
    """Cores; without a GPU, one for each process that answers."""
    mem_mb: Count = 3000
    runtime: Count = 60
    """Minutes; after these the cluster ends the job, and the next try goes on where it was."""
    gpu: Count = 0
    """Of all nodes together."""
    nodes: Annotated[int, Field(ge=1)] = 1


_LIGHT = Resources(runtime=15)
"""Of steps that only read what is stored."""
_TEACHING = {"design": Resources(threads=2, runtime=240)}
_REAL = Resources(threads=2, mem_mb=6000, runtime=720)
"""135M parameters on two cores, as the book's own runs."""
_LARGE = {
    "detect": Resources(threads=4, mem_mb=48000, runtime=4 * 60, gpu=1),
    "generate": Resources(threads=4, mem_mb=48000, runtime=36 * 60, gpu=1),
    "pairs": Resources(threads=4, mem_mb=48000, runtime=12 * 60, gpu=1),
    "train": Resources(threads=16, mem_mb=256000, runtime=24 * 60, gpu=4),
    "evaluate": Resources(threads=4, mem_mb=48000, runtime=24 * 60, gpu=1),
}
"""Appendix A: detection "finishes in 2 GPU hours (NVIDIA H100)", "response generation [...] in 12
and 36 GPU hours", trainings "on either 4 x NVIDIA H100 GPUs or 8 x NVIDIA H200 GPUs, where all runs
finish within 24 hours". Of evaluation and main memory the paper does not speak: those are ours."""

OF_PROCESS = {"zero1": 45000, "zero2": 45000, "fsdp": 80000}
"""MB of the machine's memory for each process of a shared training, by its settings: eight billion
weights in float32 until they are shared out, under FSDP with those of the reference."""
OF_ENGINE, BESIDES = 25000, 60000
"""For each engine, which is handed the weights by a process of its own; and for the process that
starts them all, with its pairs."""


def resources_of(stage: str, model: str, means: Means | None = None) -> Resources:
    """What a stage needs for a model: one of this project's, the real small one, or a large one."""
    found = _usual(stage, model)
    if means and stage == "train" and (launch := means.launch):
        return found.changed({"gpu": launch.gpus * launch.nodes, "nodes": launch.nodes,
                              "mem_mb": OF_PROCESS[launch.settings] * launch.gpus + BESIDES})
    if means and stage == "generate" and means.engine == "vllm":
        return found.changed({"gpu": means.engines * means.tensor_parallel,
                              "threads": found.threads * means.engines,
                              "mem_mb": OF_ENGINE * means.engines + BESIDES})
    return found


def _usual(stage: str, model: str) -> Resources:
    if stage in ("fetch", "mask"):
        return _LIGHT
    spec = REGISTRY.get(model)
    if stage == "design" or spec and spec.seed is not None:
        return _TEACHING.get(stage, Resources())
    return _REAL if spec and spec.wheel else _LARGE[stage]
