"""Work, memory and exchange of a model, from its shape.

A multiplication and an addition count as two operations. Memory is that of weights, keys and
values, states of a training, and stored attention. For collective operations over n GPUs on a ring,
each GPU sends (n - 1) / n of the whole for all-gather and for reduce-scatter, and both for
all-reduce.
"""

from __future__ import annotations

from typing import Literal

from rmutils.experiments.scale.shapes import Shape
from rmutils.longcontext.context_parallel import communication


def seen(new: int, cached: int = 0, window: int | None = None) -> int:
    """Pairs of a token and one that it sees, itself or before it.

    Parameters
    ----------
    new, cached : int
        Tokens that are read, and tokens before them whose keys are kept.
    window : int, optional
        Tokens that each sees at most.
    """
    if window is None or cached + new <= window:
        return new * cached + new * (new + 1) // 2
    growing = max(0, window - cached)  # so many see less than a whole window, or just one
    return growing * cached + growing * (growing + 1) // 2 + (new - growing) * window


def attention(shape: Shape, new: int, cached: int = 0) -> float:
    """Operations of queries times keys, and of weights times values, in all layers.

    Each pair that is seen costs `4 heads head_size`. That holds for kernels which skip what the
    causal mask and the window hide; without this, prefill costs about twice as much.
    """
    each = 4 * shape.heads * shape.head_size
    sliding = shape.layers - shape.full_layers
    return float(each * (shape.full_layers * seen(new, cached)
                         + sliding * seen(new, cached, shape.window)))


def forward(shape: Shape, new: int, cached: int = 0, logits: int | None = None) -> float:
    """Operations of a forward pass: twice the weights of each matrix per token, and attention.

    Parameters
    ----------
    logits : int, optional
        For how many tokens the next one is predicted; None: for all. Generation needs one.
    """
    matrices = 2 * new * shape.layers * shape.layer_weights
    output = 2 * (new if logits is None else logits) * shape.output_weights
    return matrices + output + attention(shape, new, cached)


def training(shape: Shape, tokens: int, recompute: bool = True) -> float:
    """Operations of a sequence in training: forward, backward at twice its cost, and, with gradient
    checkpointing, the layers once more."""
    again = forward(shape, tokens, logits=0) if recompute else 0.0
    return 3 * forward(shape, tokens) + again


HALF, SINGLE = 2, 4
"""Bytes of a number in bfloat16 and in float32."""
Sharing = Literal["zero1", "zero2", "fsdp", "alone"]


def weights(shape: Shape, each: int = HALF) -> int:
    """Bytes of all weights."""
    return each * shape.parameters


def cache(shape: Shape, tokens: int, each: int = HALF) -> int:
    """Bytes of the keys and values of a text.

    Layers with a sliding window keep those before the current token that it still sees, one less
    than the window.
    """
    sliding = shape.layers - shape.full_layers
    kept = min(tokens, shape.window - 1) if shape.window else tokens
    return (2 * shape.key_heads * shape.head_size * each
            * (shape.full_layers * tokens + sliding * kept))


def states(shape: Shape, sharing: Sharing, gpus: int) -> float:
    """Bytes of weights, gradients and AdamW's states on each GPU.

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
    """Bytes that a training keeps of one batch for its backward pass, without the logits.

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
    """Bytes of the logits of a batch in training: in bfloat16, in float32 for the loss, and its
    gradient."""
    return float((HALF + SINGLE + SINGLE) * shape.vocabulary * tokens)


def stored_attention(shape: Shape, tokens: int, how: Literal["all", "row", "place"]) -> float:
    """Bytes that a detection keeps of the attention of all heads, in float32.

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


def tensor_parallel(shape: Shape, tokens: int, gpus: int, each: int = HALF) -> float:
    """Bytes sent in a forward pass whose layers are shared: two all-reduces of the hidden states
    per layer, after attention and after the feed-forward layer (Megatron, Shoeybi et al., 2019)."""
    whole = tokens * shape.hidden * each
    return 2 * shape.layers * whole * 2 * (gpus - 1) / gpus


def context_parallel(shape: Shape, tokens: int, gpus: int, each: int = HALF) -> float:
    """Bytes sent in a forward pass over a sliced text: keys and values are gathered in each layer.

    As the Olmo 3 recipe has it (`rmutils.longcontext.context_parallel`), also in layers with a
    sliding window. In training the gradients of the same come back.
    """
    return float(communication(tokens, gpus, layers=shape.layers, key_heads=shape.key_heads,
                               head_size=shape.head_size, bytes_each=each))


def training_step(shape: Shape, sharing: Sharing, gpus: int, each: int = HALF) -> float:
    """Bytes sent for the gradients and weights of one optimizer step, however large its batch.

    ZeRO-1 and ZeRO-2 reduce the gradients and gather the weights, as much as one all-reduce. FSDP
    gathers the weights twice, for the forward and the backward pass, and reduces the gradients
    (ZeRO, section 7); with gradient accumulation it does so for each part of the batch.
    """
    rounds = {"alone": 0, "zero1": 2, "zero2": 2, "fsdp": 3}[sharing]
    return rounds * each * shape.parameters * (gpus - 1) / gpus
