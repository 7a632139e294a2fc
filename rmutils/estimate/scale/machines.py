"""Accelerators by their makers' data sheets, and which share of these rates is assumed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from rmutils.config import Config

Share = Annotated[float, Field(gt=0, le=1)]


@dataclass(frozen=True)
class Machine:
    """One accelerator.

    Attributes
    ----------
    flops : float
        Operations per second in bfloat16, dense.
    memory : float
        Bytes.
    bandwidth : float
        Bytes per second from and to its memory.
    link : float
        Bytes per second that it can send to its neighbours in the node.
    """

    name: str
    flops: float
    memory: float
    bandwidth: float
    link: float


MACHINES = {
    "h100": Machine("NVIDIA H100 SXM", 989e12, 80e9, 3.35e12, 450e9),
    "h200": Machine("NVIDIA H200 SXM", 989e12, 141e9, 4.8e12, 450e9),
}
"""NVIDIA's data sheets print 1,979 TFLOPS in bfloat16 with sparsity, of which dense products have
half, and 900 GB/s of NVLink, of which half goes out. Whether the paper's H100s are of this form it
does not say."""


class Assumptions(Config):
    """What is not to be derived. All of it is ours."""

    compute: Share = 0.4
    """Share of the peak in prefill and training. Llama 3 was trained at 38 to 43 % of it on H100s
    (Grattafiori et al., 2024, Table 4)."""
    bandwidth: Share = 0.6
    """Share of the memory's peak where a token at a time is written."""
    link: Share = 0.7
    """Share of the link's peak."""
    together: Annotated[int, Field(ge=1)] = 256
    """Texts that vLLM has in work at once, if memory allows."""
    reserve: Share = 0.9
    """Share of an accelerator's memory that vLLM takes: its own default."""
    prompt: Annotated[int, Field(ge=1)] = 1500
    """Tokens of a question of Table 6 with its examples."""
    answer: Annotated[int, Field(ge=1)] = 500
    """Tokens of its answer by a model that does not think; others take as many as their mean
    output in Table 12."""
