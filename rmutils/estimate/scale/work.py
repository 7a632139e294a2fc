"""Floating-point operations of a model: a multiplication and an addition count as two."""

from __future__ import annotations

from rmutils.estimate.scale.shapes import Shape


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
    """Of queries times keys, and of weights times values, in all layers.

    Each pair that is seen costs `4 heads head_size`. That holds for kernels which skip what the
    causal mask and the window hide; without this, prefill costs about twice as much.
    """
    each = 4 * shape.heads * shape.head_size
    sliding = shape.layers - shape.full_layers
    return float(each * (shape.full_layers * seen(new, cached)
                         + sliding * seen(new, cached, shape.window)))


def forward(shape: Shape, new: int, cached: int = 0, logits: int | None = None) -> float:
    """Of a forward pass: twice the weights of each matrix per token, and attention.

    Parameters
    ----------
    logits : int, optional
        For how many tokens the next one is foretold; None: for all. Generation needs one.
    """
    matrices = 2 * new * shape.layers * shape.layer_weights
    output = 2 * (new if logits is None else logits) * shape.output_weights
    return matrices + output + attention(shape, new, cached)


def training(shape: Shape, tokens: int, recompute: bool = True) -> float:
    """Of a sequence in training: forward, backward at twice its cost, and, with gradient
    checkpointing, the layers once more."""
    again = forward(shape, tokens, logits=0) if recompute else 0.0
    return 3 * forward(shape, tokens) + again
