"""What a model costs, roughly, before it is loaded: bytes, memory, seconds of a detection."""

from __future__ import annotations

import json
import math
import re
import time
from pathlib import Path

import numpy as np

from rmutils.core import paths
from rmutils.models.hub import fetched, hub_id_of
from rmutils.models.known_models import REGISTRY

TIMINGS = paths.DATA / "timings.json"  # recorded runs, and the seconds of `_work` on their machine
SMALL = 135e6  # weights of smollm2-135m, to which `weight` is anchored
SLOWER = 13
"""Seconds per token of smollm2-135m, as a multiple of those of a teaching model; of the teaching
models none takes more than twice as long as another."""
HALF = 2  # bytes of a weight in the files of the hub
PEAK, BESIDE = 5.7, 0.9e9
"""Bytes of memory in a detection on a CPU: for each weight, at the most, while they are unpacked;
and for libraries and texts. Measured: 1.6 GB for 135 million weights, 9.2 GB for 1.5 billion."""
DETECTION = 7.8
"""Seconds of one core, of the machine of `data/timings.json`, that the default detection takes with
a teaching model: those of chapter 1 (`notebooks/costs.yml`), for both lengths."""


def parameters(name: str) -> float | None:
    """Return a model's number of weights, roughly; None if neither name nor files tell it."""
    if name in REGISTRY and REGISTRY[name].seed is not None:
        return 1e6
    folder = Path(name)
    if folder.is_dir() and (sizes := [p.stat().st_size for p in folder.glob("*.safetensors")]):
        return sum(sizes) / HALF
    if found := re.search(r"(\d+(?:\.\d+)?)([bm])(?![a-z])", folder.name.lower()):
        return float(found[1]) * {"b": 1e9, "m": 1e6}[found[2]]
    return None


def weight(name: str) -> float:
    """Return a model's time per token as a multiple of a teaching model's."""
    size = parameters(name)
    return max(1.0, SLOWER * (SMALL if size is None else size) / SMALL)


def download(name: str) -> int:
    """Return the bytes of a model's files; 0 for models that are trained here."""
    spec = REGISTRY.get(name)
    if spec and spec.wheel:
        return spec.wheel.size
    return round(HALF * (parameters(name) or 0)) if hub_id_of(name) else 0


def to_fetch(name: str) -> int:
    """Return the bytes of a model that is not on this machine yet."""
    spec = REGISTRY.get(name)
    if spec and spec.wheel:
        there = any((root / "models" / name).is_dir() for root in paths.caches())
    else:
        hub_id = hub_id_of(name)
        there = hub_id is None or fetched(hub_id)
    return 0 if there else download(name)


def memory(name: str) -> int:
    """Return the bytes of memory that a detection takes on a CPU."""
    return round(BESIDE + PEAK * (parameters(name) or 0))


def detection_seconds(name: str) -> float:
    """Return the seconds of one core that `rmutils detect NAME` takes."""
    return DETECTION * weight(name)


def _work() -> None:
    """A fixed piece of work like that of a notebook: Python, products of matrices, functions."""
    sum(i * i for i in range(400_000))
    a = np.linspace(0, 1, 48 * 48).reshape(48, 48)
    for _ in range(400):
        a = np.tanh(a @ a / 48)  # from 65 x 65 on OpenBLAS takes several cores, and waits for them
    np.exp(np.linspace(0, 1, 400_000)).sum()


def work_seconds(clock=time.perf_counter) -> float:
    """Return the seconds of that piece, the median of nine."""
    taken = []
    for _ in range(9):
        started = clock()
        _work()
        taken.append(clock() - started)
    return float(np.median(taken))


def slowness() -> float:
    """Return how many times as long a run takes on this machine just now as on the recorded one."""
    reference = json.loads(TIMINGS.read_text(encoding="utf-8"))["work_seconds"]
    return math.sqrt(work_seconds() / reference)
