"""Attention rows become retrieval scores, measures and chosen heads; torch waits for use."""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    **dict.fromkeys(("DetectConfig", "detect", "success_rate"), "rmutils.heads.detection"),
    "HeadScores": "rmutils.heads.scores",
    **dict.fromkeys(("choose", "export_masked", "mask_heads"), "rmutils.heads.masking"),
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
