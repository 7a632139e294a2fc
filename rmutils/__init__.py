"""Helpers of the book "RetMask, reproduced".

The names in `__all__` are promised: they keep their meaning from one version to the next. They are
imported when they are first used, so that `import rmutils` costs nothing.
"""

from __future__ import annotations

import importlib
import warnings
from typing import Any

warnings.filterwarnings("ignore", "IProgress not found")  # tqdm: notebooks show bars of text

_HOMES = {
    "load_model": "rmutils.models",
    "detect": "rmutils.heads",
    "success_rate": "rmutils.heads",
    "DetectConfig": "rmutils.heads",
    "HeadScores": "rmutils.heads",
    "mask_heads": "rmutils.heads",
    "choose": "rmutils.heads",
    "export_masked": "rmutils.heads",
    "generate": "rmutils.models.engine.generation",
    "LanguageModel": "rmutils.models",
    "register_attention": "rmutils.attention.decoding",
}
__all__ = list(_HOMES)
__version__ = "1.0.0"


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'rmutils' has no attribute {name!r}")
