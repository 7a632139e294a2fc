"""Bytes that each GPU sends to others, for the ways to share a model that does not fit one.

Of collective operations over n GPUs on a ring, each GPU sends (n - 1) / n of the whole for
all-gather and for reduce-scatter, and both for all-reduce.
"""

from __future__ import annotations

from rmutils.estimate.scale.memory import HALF, Sharing
from rmutils.estimate.scale.shapes import Shape
from rmutils.longcontext.context_parallel import communication


def tensor_parallel(shape: Shape, tokens: int, gpus: int, each: int = HALF) -> float:
    """Of a forward pass whose layers are shared: two all-reduces of the hidden states per layer,
    after attention and after the feed-forward layer (Megatron, Shoeybi et al., 2019)."""
    whole = tokens * shape.hidden * each
    return 2 * shape.layers * whole * 2 * (gpus - 1) / gpus


def context_parallel(shape: Shape, tokens: int, gpus: int, each: int = HALF) -> float:
    """Of a forward pass whose text is cut into slices: keys and values are gathered in each layer.

    As the Olmo 3 recipe has it (`rmutils.longcontext.context_parallel`), also in layers with a
    sliding window. In training the gradients of the same come back.
    """
    return float(communication(tokens, gpus, layers=shape.layers, key_heads=shape.key_heads,
                               head_size=shape.head_size, bytes_each=each))


def training_step(shape: Shape, sharing: Sharing, gpus: int, each: int = HALF) -> float:
    """Of the gradients and weights of one optimizer step, however large its batch.

    ZeRO-1 and ZeRO-2 reduce the gradients and gather the weights, as much as one all-reduce. FSDP
    gathers the weights twice, for the forward and the backward pass, and reduces the gradients
    (ZeRO, section 7); with gradient accumulation it does so for each part of the batch.
    """
    rounds = {"alone": 0, "zero1": 2, "zero2": 2, "fsdp": 3}[sharing]
    return rounds * each * shape.parameters * (gpus - 1) / gpus
