"""Libraries that only an extra of this package brings."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
from types import ModuleType

from rmutils.core.errors import UserError


def extra_with(module: str | None) -> str | None:
    """Return the first extra of this package that brings a module, or None."""
    wanted = (module or "").partition(".")[0].replace("_", "-").lower()
    for line in importlib.metadata.requires("rmutils") or []:
        if found := re.match(rf"{re.escape(wanted)}\b(?!-).*extra == ['\"](\w+)['\"]", line):
            return found[1]
    return None


def lacking(error: ModuleNotFoundError) -> UserError | None:
    """Return an error that names the extra to install; None if no extra has the module."""
    if (extra := extra_with(error.name)) is None:
        return None
    return UserError(f"this needs {error.name}, which is not installed: "
                     f'`pip install "rmutils[{extra}]"`')


def needed(module: str) -> ModuleType:
    """Import a module of an extra. UserError if it is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise lacking(error) or error from error
