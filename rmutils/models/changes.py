"""What is changed in a model in memory for the time being: masks, and attention by layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
    """Return what is noted of a model, the oldest change first, and an attention of another make.
    """
    attention = getattr(getattr(model, "config", None), "_attn_implementation", None)
    own = [] if attention is None or attention in _PLAIN else [["attention", attention]]
    return [*getattr(model, _NAME, []), *own]
