"""Detection by length of the prompt: each way, one after the other, on the same token ids."""

from __future__ import annotations

import time
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.measuring import OTHERS, copied
from benchmarks.records import Results
from benchmarks.watching import LIBRARIES, WAYS, Asked, rows
from rmutils.book.chapters.speed import FOLDER, differences, load
from rmutils.core.config import Config
from rmutils.models.products import Linear

SIZES = 512, 1024, 2048
"""Rows and columns of the matrices whose products tell the machine's rate."""
REPEATS = 5


class Settings(Config):
    """Which prompts, of the first needle and its haystack."""

    model: str = "smollm2-135m"
    lengths: tuple[int, ...] = (512, 1024, 2048, 4096)
    depths: tuple[float, ...] = (0.0, 0.5, 1.0)
    rounds: int = 3
    """Repeats of the way that answers cases together; for the others each case is a sample."""


QUICK = {"model": "tiny-llama", "lengths": (256, 512)}


def measure(settings: Settings = Settings(), folder: Path = FOLDER) -> bool:
    """Measure what is not measured yet.

    Returns
    -------
    bool
        True if all ways said and counted the same.
    """
    results = Results("detection", settings, folder)
    if not list(results.find(way="matrix products")):
        results.add({"way": "matrix products", "length": 0, "rates": product_rates()})
    with copied(settings.model) as model:
        for way in (*WAYS, *LIBRARIES):
            left = [n for n in settings.lengths if not list(results.find(way=way, length=n))]
            if left and way in LIBRARIES and not OTHERS.exists():
                print(f"{way} is not installed: `python .ci/bench.py` makes .venv-bench.")
            elif left:
                asked = Asked(lengths=left, depths=settings.depths, rounds=settings.rounds)
                for row in rows(way, model, asked):
                    results.add(row)
    found = differences(load("detection", folder))
    print(found.to_string(index=False))
    return not found[["answers", "heads"]].fillna(0).to_numpy().any()


@torch.inference_mode()
def product_rates() -> list[float]:
    """Operations per second of products of float32 matrices, at the size and by the library of the
    two in PyTorch that are fastest here."""
    rates: list[list[float]] = []
    for size, kind in product(SIZES, (nn.Linear, Linear)):
        a, multiply = torch.rand(size, size), kind(size, size, bias=False)
        multiply(a)
        rates.append([])
        for _ in range(REPEATS):
            started = time.perf_counter()
            multiply(a)
            rates[-1].append(2 * size**3 / (time.perf_counter() - started))
    return max(rates, key=np.median)
