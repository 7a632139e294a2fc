"""Heads chosen by a policy, and switched off for a while: the ablated model of section 3."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, get_args

import torch

from rmutils.errors import UserError
from rmutils.heads.scores import Head, HeadScores
from rmutils.models import LanguageModel

Policy = Literal["retrieval", "non-retrieval", "random"]
"""Which heads are masked: RetMask, Non-Retrieval-Mask or Random-Mask (section 4.1)."""


def choose(
    scores: HeadScores, policy: Policy, *, tau: float | None = None, top_k: int | None = None,
    seed: int = 42,
) -> list[Head]:
    """The heads to mask: the retrieval heads H_ret, or as many others to compare with.

    Parameters
    ----------
    scores : HeadScores
    policy : {"retrieval", "non-retrieval", "random"}
        `retrieval`: H_ret itself, the heads at or above `tau` (section 2) or the `top_k` with the
        highest scores (appendix B). `non-retrieval`: "`|H_ret|` randomly-selected non-retrieval
        heads". `random`: "`|H_ret|` heads randomly masked. Masked heads can be the retrieval heads"
        (both section 4.1).
    tau, top_k
        What makes a retrieval head, one of the two (see `HeadScores.select`).
    seed : int
        Of the random draws. The paper is silent; 42 in the authors' `mask_retrieval_head.py`.

    Returns
    -------
    list of (layer, head)
        Retrieval heads with the highest first, random heads in the order of layer and head.

    Raises
    ------
    UserError
        There is no such policy, no head reaches `tau`, there are not `top_k` heads, or fewer
        non-retrieval heads than retrieval heads.
    """
    if policy not in get_args(Policy):
        raise UserError(f"no policy is called {policy!r}. Policies: {', '.join(get_args(Policy))}.")
    retrieval = scores.select(tau=tau, top_k=top_k)
    if policy == "retrieval":
        return retrieval
    excluded = retrieval if policy == "non-retrieval" else ()
    return scores.select_random(len(retrieval), exclude=excluded, seed=seed)


def check_heads(lm: LanguageModel, heads: Iterable[Head]) -> set[Head]:
    """The heads as a set.

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
    return heads


@contextmanager
def mask_heads(lm: LanguageModel, heads: Iterable[Head]) -> Iterator[None]:
    """Switch heads off: "we zero out the corresponding columns in the attention output projection
    matrix W_o" (section 3, Equation 2, as the authors' `mask_retrieval_head.py` does).

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
    kept = {head: _columns(lm, *head).clone() for head in check_heads(lm, heads)}
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
