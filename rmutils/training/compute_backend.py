"""What a run is computed with: who answers, over how many GPUs, and how a training is shared.

This is no part of a run's configuration. Where it changes results, as another engine does, it is
among the inputs of what is stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from rmutils.core.config import Config
from rmutils.models import LanguageModel
from rmutils.preference.backends import BACKENDS
from rmutils.preference.judges import Judge, Proxy, ServerJudge
from rmutils.preference.responses import Backend

Count = Annotated[int, Field(ge=1)]


class Launch(Config):
    """A training that several processes share, one for each GPU, by `accelerate launch`."""

    settings: Literal["zero1", "zero2", "fsdp"] = "zero1"
    """What is shared besides the pairs: the optimizer's state; the gradients, too; or all. The
    paper is silent; the authors' scripts have ZeRO-1, and ZeRO-2 for Qwen3."""
    gpus: Count = 4
    """Of each node. Appendix A: "4 x NVIDIA H100 GPUs or 8 x NVIDIA H200 GPUs"."""
    nodes: Count = 1
    """More than one: within a job of SLURM."""


class ComputeBackend(Config):
    """The defaults are those of one machine."""

    engine: Annotated[str, BACKENDS] = "transformers"
    """Who answers, of `rmutils.preference.backends.BACKENDS`. Appendix A: "we deploy models using
    the vLLM engine"."""
    tensor_parallel: Count = 1
    """GPUs that share each layer of a model that answers; for engines with GPUs of their own, as
    `engines`."""
    engines: Count = 1
    """So many answer side by side, each to its share of the instructions: data parallelism."""
    launch: Launch | None = None
    """None: the training takes this process."""
    judge: str | None = None
    """Address of the server whose model judges for Win-Lose-Pair (section 4.1: "Gemma-3-27B-IT");
    None: the proxy, which needs none."""

    def backend(self, lm: LanguageModel, named: str, workers: int) -> Backend:
        """Who answers for a model, which was asked for by that name."""
        return BACKENDS[self.engine].start(lm, named, workers=workers,
                                           tensor_parallel=self.tensor_parallel)

    def workers(self, others: int) -> int:
        """How many answer side by side, where `others` would do so without GPUs of their own."""
        return self.engines if BACKENDS[self.engine].own_gpus else others

    def judging(self, lm: LanguageModel, thinking: bool) -> Judge:
        """The judge of two responses of a model."""
        return ServerJudge(self.judge) if self.judge else Proxy(lm, thinking)

    def inputs(self) -> dict[str, str]:
        """What a result depends on, besides what it depends on with the defaults."""
        found = {}
        if version := BACKENDS[self.engine].version():
            found["engine"] = version
        if self.judge:
            found["judge"] = ServerJudge(self.judge).identity
        return found


def with_new_names(changes: Mapping[str, str]) -> dict[str, str]:
    """Changes of parameters, with `compute_backend.` where older commands have `means.`."""
    return {re.sub(r"^means\.", "compute_backend.", name): value
            for name, value in changes.items()}
