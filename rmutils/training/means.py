"""By what means a run is done: who answers, over how many GPUs, and how the training is shared.

They are no part of a run's configuration. Where one has influence on the result, as another engine
has, it is among the inputs of what is stored.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field

from rmutils.config import Config
from rmutils.contrast.backends import Transformers
from rmutils.contrast.judges import Judge, Proxy, ServerJudge
from rmutils.contrast.responses import Backend
from rmutils.models import LanguageModel

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


class Means(Config):
    """The defaults are those of one machine."""

    engine: Literal["transformers", "vllm"] = "transformers"
    """Appendix A: "we deploy models using the vLLM engine"."""
    tensor_parallel: Count = 1
    """GPUs that share each layer of a model that answers; vLLM only, as `engines`."""
    engines: Count = 1
    """So many answer side by side, each to its share of the instructions: data parallelism."""
    launch: Launch | None = None
    """None: the training takes this process."""
    judge: str | None = None
    """Address of the server whose model judges for Win-Lose-Pair (section 4.1: "Gemma-3-27B-IT");
    None: the proxy, which needs none."""

    def backend(self, lm: LanguageModel, named: str, workers: int) -> Backend:
        """Who answers for a model, which was asked for by that name."""
        if self.engine == "transformers":
            return Transformers(lm, named=named, workers=workers)
        from rmutils.contrast.vllm import VLLM

        lm.model.to("cpu")  # it is only exported, and the engine wants the memory
        torch.cuda.empty_cache()
        return VLLM(lm, named=named, workers=workers, tensor_parallel_size=self.tensor_parallel)

    def workers(self, others: int) -> int:
        """How many answer side by side, where `others` would do so without vLLM."""
        return self.engines if self.engine == "vllm" else others

    def judging(self, lm: LanguageModel, thinking: bool) -> Judge:
        """The judge of two responses of a model."""
        return ServerJudge(self.judge) if self.judge else Proxy(lm, thinking)

    def inputs(self) -> dict[str, str]:
        """What a result depends on besides all that it does with the means of one machine."""
        found = {}
        if self.engine != "transformers":
            from rmutils.contrast.vllm import version_of_vllm

            found["engine"] = f"vllm {version_of_vllm()}"
        if self.judge:
            found["judge"] = ServerJudge(self.judge).identity
        return found
