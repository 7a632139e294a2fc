"""A step of decoding on a GPU, by formula: what is read from memory, and what is computed.

The time of a step is at least that of reading its bytes, and at least that of its arithmetic; the
longer of the two is the roofline. A plain step is bound by memory: it reads every weight and all
keys and values for one token. Select-Attention reads fewer keys and values, but the selected tokens
pass through all later layers again, and that is arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True)
class Gpu:
    """Peak rates of a GPU."""

    bytes_per_second: float
    flops: float
    """Operations per second, dense bfloat16; a multiply-add is two."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a model; 16 bits per number."""

    layers: int
    hidden: int
    heads: int
    key_heads: int
    intermediate: int
    vocabulary: int

    @property
    def head(self) -> int:
        return self.hidden // self.heads

    @property
    def layer_weights(self) -> int:
        """Weights of the matrices of one layer, with a gated MLP."""
        return (2 * self.hidden**2 + 2 * self.hidden * self.key_heads * self.head
                + 3 * self.hidden * self.intermediate)

    @property
    def key_values(self) -> int:
        """Numbers that a token's keys and values of one layer have."""
        return 2 * self.key_heads * self.head


H100 = Gpu(3.35e12, 989e12)
"""NVIDIA's data sheet of the H100 SXM: 3.35 TB/s; 1,979 TFLOP/s with sparsity, half of it dense."""
LLAMA_8B = Sizes(32, 4096, 32, 8, 14336, 128256)
"""Llama 3.1 8B, as its configuration on the hub has it."""
BYTES = 2


def step(sizes: Sizes, gpu: Gpu, tokens: int, kept: float = 1, filtered: int = 0) -> pd.Series:
    """Return the bounds of one step for a single text.

    Parameters
    ----------
    tokens : int
        Of the text so far.
    kept : float
        Share of them that later layers see.
    filtered : int
        How many layers stand behind the filter; 0: plain attention.

    Returns
    -------
    Series
        `memory` and `arithmetic` (seconds), `bound` (the larger), `held` (bytes of what is kept of
        the text).
    """
    seen, first = round(kept * tokens), sizes.layers - filtered
    cached = first * sizes.key_values * tokens
    hidden = sizes.hidden * tokens if filtered else 0
    weights = sizes.layers * sizes.layer_weights + sizes.hidden * sizes.vocabulary
    read = weights + cached + (sizes.hidden * seen if filtered else 0)
    products = 2 * sizes.heads * sizes.head
    work = (first * (sizes.layer_weights + products * tokens)
            + filtered * (sizes.layer_weights * seen + products * seen**2 / 2)
            + sizes.hidden * sizes.vocabulary)
    memory, arithmetic = BYTES * read / gpu.bytes_per_second, 2 * work / gpu.flops
    return pd.Series({"memory": memory, "arithmetic": arithmetic,
                      "bound": max(memory, arithmetic), "held": BYTES * (cached + hidden)})


def roofline(
    lengths: Iterable[int], shares: Iterable[float], *, sizes: Sizes = LLAMA_8B, gpu: Gpu = H100,
    filtered: int = 16,
) -> pd.DataFrame:
    """`step` at several lengths and shares of tokens, beside the plain step.

    Returns
    -------
    DataFrame
        `tokens`, `kept`, the columns of `step`, and `times` and `held_share`: bound and bytes as
        multiples of the plain step's.
    """
    rows = []
    for tokens in lengths:
        plain = step(sizes, gpu, tokens)
        for kept in shares:
            one = step(sizes, gpu, tokens, kept, filtered)
            rows.append({"tokens": tokens, "kept": kept, **one,
                         "times": one["bound"] / plain["bound"],
                         "held_share": one["held"] / plain["held"]})
    return pd.DataFrame(rows)
