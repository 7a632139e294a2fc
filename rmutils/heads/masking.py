"""Heads switched off for a while: the ablated model of section 2."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from rmutils.errors import UserError
from rmutils.heads.scores import Head
from rmutils.models import LanguageModel


@contextmanager
def mask_heads(lm: LanguageModel, heads: Iterable[Head]) -> Iterator[None]:
    """Switch heads off: "we zero out the corresponding columns in the attention output projection
    matrix W_o" (section 2, as the authors' `mask_retrieval_head.py` does).

    The weights are changed in place. On exit, also after an exception, they are what they were
    before, bit for bit. Masks can be nested.

    Parameters
    ----------
    lm : LanguageModel
    heads : iterable of (layer, head)
        Both from 0; the heads are query heads. None at all: nothing is masked.

    Raises
    ------
    UserError
        The model has no such head.
    """
    heads = set(heads)
    layers, width = lm.shape
    for layer, head in sorted(heads):
        if not (0 <= layer < layers and 0 <= head < width):
            raise UserError(f"{lm.name} has no head {layer}-{head}: it has {layers} layers of "
                            f"{width} heads, counted from 0-0 to {layers - 1}-{width - 1}.")
    kept = {head: _columns(lm, *head).clone() for head in heads}
    try:
        for head in kept:
            _columns(lm, *head).zero_()
        yield
    finally:
        for head, old in kept.items():
            _columns(lm, *head).copy_(old)


def _columns(lm: LanguageModel, layer: int, head: int) -> torch.Tensor:
    """View of the columns of W_o that read a head's output."""
    weight = lm.model.base_model.layers[layer].self_attn.o_proj.weight.detach()
    size = weight.shape[1] // lm.shape[1]
    return weight[:, head * size : (head + 1) * size]
