"""What is changed in a model in memory: masks and attention for the time being, and weights."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import AttentionInterface, PreTrainedModel

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
