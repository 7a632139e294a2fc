"""What is changed in a model in memory: masks and attention for the time being, and weights."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

_NAME = "rmutils_changes"
_PLAIN = frozenset({"eager", *AttentionInterface().keys()})
"""Attention of transformers itself. What is registered later is of this project, or of a user."""


@contextmanager
def changed(model: PreTrainedModel, *how: object) -> Iterator[None]:
    """Note that a model is changed meanwhile; `how` is JSON-able."""
    before = getattr(model, _NAME, [])
    setattr(model, _NAME, [*before, [*how]])
    try:
        yield
    finally:
        setattr(model, _NAME, before)


def changes_of(model: PreTrainedModel) -> list[list[object]]:
    """Return what is noted of a model, oldest first, and an attention of another make."""
    attention = getattr(getattr(model, "config", None), "_attn_implementation", None)
    own = [] if attention is None or attention in _PLAIN else [["attention", attention]]
    return [*getattr(model, _NAME, []), *own]


def register(name: str, attention: Callable[..., Any], like: str = "sdpa") -> None:
    """Make an attention known to transformers, with the masks of another one: else it gets none."""
    AttentionInterface.register(name, attention)
    if like in ALL_MASK_ATTENTION_FUNCTIONS:
        AttentionMaskInterface.register(name, ALL_MASK_ATTENTION_FUNCTIONS[like])


@contextmanager
def using(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Switch a model to another attention; on exit its own comes back, also after an error."""
    before = model.config._attn_implementation
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


WORDS = 64
"""So many words of 8 bytes are summed up before they are hashed, which is five times as fast."""


def tensors_of(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return weights and buffers by name, those too that no checkpoint has; tied ones once."""
    return dict(model.named_parameters()) | dict(model.named_buffers())


def fingerprint(model: PreTrainedModel) -> str:
    """Return a hash of sums of all weights and buffers, which another edit of them changes."""
    total = hashlib.sha256()
    for name, tensor in tensors_of(model).items():
        total.update(f"{name} {tensor.dtype} {[*tensor.shape]}".encode())
        if tensor.is_meta:  # of a model that is elsewhere
            continue
        whole = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        words = pad(whole, (0, -len(whole) % (8 * WORDS))).view(torch.int64)
        for sums in (words.view(-1, WORDS).sum(1), words.view(WORDS, -1).sum(0)):
            total.update(sums.cpu().numpy())
    return total.hexdigest()
