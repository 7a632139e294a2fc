"""Helpers of the book "RetMask, reproduced".

The names in `__all__` are promised: they keep their meaning from one version to the next. They are
imported when they are first used, so that `import rmutils` costs nothing; `__init__.pyi` tells them
to type checkers and editors.
"""

from __future__ import annotations

import importlib
import os
import warnings
from contextlib import suppress
from typing import Any

warnings.filterwarnings("ignore", "IProgress not found")  # tqdm: notebooks show bars of text

HOMES = {
    "load_model": "rmutils.models",
    "wrap": "rmutils.models.in_memory",
    "LanguageModel": "rmutils.models",
    "generate": "rmutils.models.engine.generation",
    "DetectConfig": "rmutils.heads",
    "detect": "rmutils.heads",
    "HeadScores": "rmutils.heads",
    "stored_results": "rmutils.core.catalog",
    "success_rate": "rmutils.heads",
    "choose": "rmutils.heads",
    "mask_heads": "rmutils.heads",
    "export_masked": "rmutils.heads",
    "ResponseConfig": "rmutils.preference.responses",
    "respond": "rmutils.preference.responses",
    "make_pairs": "rmutils.preference.pairs",
    "TrainRecipe": "rmutils.training",
    "train": "rmutils.training",
    "EvaluateConfig": "rmutils.evaluation.helmet",
    "evaluate": "rmutils.evaluation.helmet",
    "lm_eval_model": "rmutils.evaluation.abilities.harness",
    "load_tables": "rmutils.paper.tables",
    "register_family": "rmutils.models.families",
    "register_attention": "rmutils.attention.decoding",
    "watch": "rmutils.attention.watching",
    "attention_kinds": "rmutils.heads.attention_kinds",
    "redirect": "rmutils.attention.redirect",
    "find_span": "rmutils.attention.redirect",
    "memory_by_heads": "rmutils.attention.head_memory",
    "register_score": "rmutils.heads.score_kinds",
    "register_strategy": "rmutils.preference.strategies",
    "register_dataset": "rmutils.evaluation.helmet.suite",
    "Question": "rmutils.corpora.world.writing",
    "UserError": "rmutils.core.errors",
}
"""Promised names, and the modules that have them."""
__all__ = list(HOMES)
__version__ = "1.2.0"


def __getattr__(name: str) -> Any:
    if name in HOMES:
        try:
            return getattr(importlib.import_module(HOMES[name]), name)
        except ModuleNotFoundError as error:  # a library of an extra
            from rmutils.core.extras import lacking

            raise lacking(error) or error from error
    raise AttributeError(f"module 'rmutils' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


if os.environ.get("RMUTILS_PLUGINS"):  # before anything else, which plug-ins may import themselves
    from rmutils.core import errors, registry

    with suppress(errors.UserError):  # told by the command, or when a registry is first looked at
        registry.load_plugins()
