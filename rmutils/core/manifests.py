"""Manifests of stored results: written with a seal, which is a hash of all that they tell."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from rmutils.core.config import digest
from rmutils.core.files import sha256

MANIFEST = "manifest.json"
FIELDS = {"stage", "version", "config", "inputs", "command", "facts", "seconds", "environment",
          "files"}
"""What a manifest tells besides its seal, `sha256`."""
UNSEALED = "has no seal, as those that version 1.0 wrote"


def write_manifest(folder: Path, told: dict[str, Any]) -> None:
    """Hash the payload in a folder, and write its manifest."""
    files = {p.name: {"sha256": sha256(p), "bytes": p.stat().st_size}
             for p in sorted(folder.glob("[!.]*")) if p.name != MANIFEST}
    write_sealed(folder, {**told, "files": files})


def write_sealed(folder: Path, told: dict[str, Any]) -> None:
    """Write a manifest with its seal, in one step."""
    text = json.dumps({**told, "sha256": digest(told)}, indent=1, ensure_ascii=False)
    draft = folder / f".{MANIFEST}"
    draft.write_text(text + "\n", encoding="utf-8")
    os.replace(draft, folder / MANIFEST)


def broken(manifest: dict[str, Any]) -> str:
    """Return what is wrong with a manifest and its seal; empty if nothing is."""
    told = {name: value for name, value in manifest.items() if name != "sha256"}
    if told.keys() != FIELDS or manifest.get("sha256", seal := digest(told)) != seal:
        return "is not as it was written"
    return "" if "sha256" in manifest else UNSEALED
