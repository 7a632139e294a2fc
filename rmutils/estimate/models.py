"""How large a model is, from its name or its files, without loading it."""

from __future__ import annotations

import re
from pathlib import Path

from rmutils.models.registry import REGISTRY

SMALL = 135e6
"""Weights of smollm2-135m, to which `weight` is anchored."""
SLOWER = 13
"""Per token, smollm2-135m takes about so many times as long as a teaching model; of the teaching
models none takes more than twice as long as another."""


def parameters(name: str) -> float | None:
    """Number of weights, roughly; None if neither name nor files tell."""
    if name in REGISTRY and REGISTRY[name].seed is not None:
        return 1e6
    folder = Path(name)
    if folder.is_dir() and (sizes := [p.stat().st_size for p in folder.glob("*.safetensors")]):
        return sum(sizes) / 2  # the usual half precision
    if found := re.search(r"(\d+(?:\.\d+)?)([bm])(?![a-z])", folder.name.lower()):
        return float(found[1]) * {"b": 1e9, "m": 1e6}[found[2]]
    return None


def weight(name: str) -> float:
    """Time per token as a multiple of a teaching model's."""
    size = parameters(name)
    return max(1.0, SLOWER * (SMALL if size is None else size) / SMALL)
