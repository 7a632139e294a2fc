"""Bytes that a model takes: weights, keys and values, states of a training, stored attention."""

from __future__ import annotations

from typing import Literal

from rmutils.estimate.scale.shapes import Shape

HALF, SINGLE = 2, 4
"""Bytes of a number in bfloat16 and in float32."""
Sharing = Literal["zero1", "zero2", "fsdp", "alone"]


def weights(shape: Shape, each: int = HALF) -> int:
    """Of all weights."""
    return each * shape.parameters


def cache(shape: Shape, tokens: int, each: int = HALF) -> int:
    """Of the keys and values of a text.

    Layers with a sliding window keep those before the current token that it still sees, one less
    than the window.
    """
    sliding = shape.layers - shape.full_layers
    kept = min(tokens, shape.window - 1) if shape.window else tokens
    return (2 * shape.key_heads * shape.head_size * each
            * (shape.full_layers * tokens + sliding * kept))


def states(shape: Shape, sharing: Sharing, gpus: int) -> float:
    """Of weights, gradients and AdamW's states on each GPU.

    Mixed precision has 2 bytes per weight for the weights that compute, 2 for their gradients, and
    12 for a float32 copy and two moments (ZeRO, Rajbhandari et al., 2020, section 3.1). ZeRO-1
    shares the 12 among the GPUs, ZeRO-2 the gradients, too. FSDP as it is set here, and a single
    process, train in float32, 16 bytes per weight; FSDP shares all of them and gathers one layer at
    a time in bfloat16.
    """
    count = shape.parameters
    if sharing == "fsdp":
        return 16 * count / gpus + HALF * max(shape.layer_weights, shape.output_weights)
    if sharing == "alone":
        return 16.0 * count
    return 2 * count + (2 * count if sharing == "zero1" else 2 * count / gpus) + 12 * count / gpus


def activations(shape: Shape, tokens: int, *, recompute: bool = True, each: int = HALF) -> float:
    """Of what a training keeps of one batch for its backward pass, without the logits.

    With gradient checkpointing: the input of each layer, and all of one layer. Of a layer are
    kept: its input and what its two norms give, queries, keys, values and attention's result, the
    sum after attention, and three products of the feed-forward layer. Attention's weights are not:
    kernels compute them anew.
    """
    layer = (4 * shape.hidden + 2 * shape.head_size * (shape.heads + shape.key_heads)
             + 3 * shape.inner)
    kept = shape.layers * shape.hidden + layer if recompute else shape.layers * layer
    return float(each * tokens * kept)


def logits(shape: Shape, tokens: int) -> float:
    """Of the logits of a batch in training: in bfloat16, in float32 for the loss, and its
    gradient."""
    return float((HALF + SINGLE + SINGLE) * shape.vocabulary * tokens)


def stored_attention(shape: Shape, tokens: int, how: Literal["all", "row", "place"]) -> float:
    """Of what a detection keeps of the attention of all heads, in float32.

    Parameters
    ----------
    how : {"all", "row", "place"}
        Weights of all tokens to all (`generate(output_attentions=True)`); those of the token at
        hand (the algorithm of Wu et al., decoding); or only where each head looks most (this
        project), 8 bytes.
    """
    heads = shape.layers * shape.heads
    return float(heads * {"all": SINGLE * tokens * tokens, "row": SINGLE * tokens,
                          "place": 8}[how])
