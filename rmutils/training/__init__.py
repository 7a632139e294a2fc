"""Preference pairs become a trained model; without trl until it is needed."""

from __future__ import annotations

import importlib

_HOMES = {
    "RECIPES": "recipes", "TrainRecipe": "recipes",
    "train": "running", "train_stored": "running",
}
__all__ = list(_HOMES)


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
