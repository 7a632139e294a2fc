"""Helpers of the book "RetMask, reproduced".

The names below are imported when they are first used, so that `import rmutils` costs nothing.
"""

from __future__ import annotations

import importlib

_HOMES = {
    "load_model": "rmutils.models",
    "detect": "rmutils.heads",
    "DetectConfig": "rmutils.heads",
    "HeadScores": "rmutils.heads",
    "mask_heads": "rmutils.heads",
}
__all__ = list(_HOMES)
__version__ = "1.0.0"


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'rmutils' has no attribute {name!r}")
