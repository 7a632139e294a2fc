"""What is changed in a model in memory for the time being: masks, and attention by layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from transformers import PreTrainedModel

_NAME = "rmutils_changes"


@contextmanager
def changed(model: PreTrainedModel, *how: object) -> Iterator[None]:
    """Note that a model is changed meanwhile; `how` is JSON-able."""
    before = changes_of(model)
    setattr(model, _NAME, [*before, [*how]])
    try:
        yield
    finally:
        setattr(model, _NAME, before)


def changes_of(model: PreTrainedModel) -> list[list[object]]:
    """Return what is noted of a model, the oldest change first."""
    return list(getattr(model, _NAME, []))
