"""Places of files and folders; no other module knows them."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from platformdirs import user_cache_dir

from rmutils.core.errors import UserError

PACKAGE = Path(__file__).resolve().parent.parent
ROOT = PACKAGE.parent  # the checkout, where data and notebooks are beside the package
CHECKOUT = (ROOT / "pyproject.toml").is_file()
"""Whether there is one. An installed package has the small data inside: see `setup.py`."""

DATA = ROOT / "data" if CHECKOUT else PACKAGE / "data"
NOTEBOOKS = ROOT / "notebooks"
BOOK = ROOT / "book"
CHAPTERS = BOOK / "chapters"
SHIPPED_ARTIFACTS = DATA / "artifacts"
SHIPPED_MODELS = DATA / "models"
PLANS = DATA / "plans"  # plans of experiments, written before their results
CORPORA = {"book": DATA / "corpus", "world": DATA / "corpus" / "world",
           "japanese": DATA / "corpus" / "japanese"}
"""Texts by name: folders with `haystack/*.txt` and `needles/needles.jsonl`."""
HAYSTACK = CORPORA["book"] / "haystack"
NEEDLES = CORPORA["book"] / "needles" / "needles.jsonl"


def restore(path: Path) -> str:
    """The command that brings back a file that ships with the project."""
    if CHECKOUT:
        return f"git checkout -- {os.path.relpath(path, ROOT)}"
    return "pip install --force-reinstall --no-deps rmutils"


def cache_dir() -> Path:
    """Return the user's cache of fetched models and results; `RMUTILS_CACHE` overrides it."""
    return Path(os.environ.get("RMUTILS_CACHE") or user_cache_dir("rmutils"))


def caches() -> list[Path]:
    """Return the user's cache, then that of `RMUTILS_SHARED_CACHE`, which is only read."""
    shared = os.environ.get("RMUTILS_SHARED_CACHE")
    if not shared:
        return [cache_dir()]
    if not os.path.isdir(shared):
        raise UserError(f"RMUTILS_SHARED_CACHE names {shared}, but no folder is there. Name the "
                        "folder that your teacher filled, or `unset RMUTILS_SHARED_CACHE`.")
    if closed := closed_folders(Path(shared)):
        raise UserError(f"RMUTILS_SHARED_CACHE names {shared}, but {closed[0]} cannot be read. Its "
                        f"owner can open it: `chmod -R go+rX {shared}`. Without it: `unset "
                        "RMUTILS_SHARED_CACHE`.")
    return [cache_dir(), Path(shared)]


@cache
def closed_folders(root: Path) -> list[str]:
    """Return the folders below one, itself included, that this user may not read."""
    there = [str(root)] if root.is_dir() else []
    for folder, names, _ in os.walk(root):
        there += [os.path.join(folder, name) for name in names]
    return [folder for folder in there if not os.access(folder, os.R_OK | os.X_OK)]
