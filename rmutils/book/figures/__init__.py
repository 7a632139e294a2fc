"""Figures of the book: one style, one colour per model, intervals always drawn."""

import importlib
from typing import Any

_HOMES = {
    **dict.fromkeys(("agreement", "arg_max_rows", "head_map", "head_maps", "ranked_scores",
                     "score_bins", "scores_by_layer", "stability",
                     "success_map"),
                    "rmutils.book.figures.head_figures"),
    "use_style": "rmutils.book.figures.style",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
