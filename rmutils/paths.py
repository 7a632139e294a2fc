"""Where things live. The only module that knows."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_dir

ROOT = Path(__file__).resolve().parent.parent
"""The checkout. `rmutils` is installed in editable mode, so data and notebooks stand beside it."""

DATA = ROOT / "data"
NOTEBOOKS = ROOT / "notebooks"
BOOK = ROOT / "book"
CHAPTERS = BOOK / "chapters"
SHIPPED_ARTIFACTS = DATA / "artifacts"
SHIPPED_MODELS = DATA / "models"
CORPORA = {"book": DATA / "corpus", "world": DATA / "corpus" / "world"}
"""Texts by name: folders with `haystack/*.txt` and `needles/needles.jsonl`."""
HAYSTACK = CORPORA["book"] / "haystack"
NEEDLES = CORPORA["book"] / "needles" / "needles.jsonl"


def cache_dir() -> Path:
    """The user's cache: fetched models and computed artifacts. `RMUTILS_CACHE` overrides it."""
    return Path(os.environ.get("RMUTILS_CACHE") or user_cache_dir("rmutils"))
