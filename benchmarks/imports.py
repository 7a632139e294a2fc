"""Seconds of `import rmutils` and `rmutils --help`, beside Python itself and the libraries."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from benchmarks.measuring import PYTHON
from benchmarks.records import Results
from rmutils.book.chapters.speed import FOLDER
from rmutils.core.config import Config
from rmutils.core.paths import ROOT

STARTS = {
    "python": ("-c", "pass"),
    "import rmutils": ("-c", "import rmutils"),
    "rmutils --help": ("-m", "rmutils", "--help"),
    "import torch": ("-c", "import torch"),
    "import torch, transformers": ("-c", "import torch; from transformers import AutoModel"),
}


class Settings(Config):
    """Starts of each kind, after one that fills the machine's file cache."""

    rounds: int = 5


QUICK = {"rounds": 1}


def measure(settings: Settings = Settings(), folder: Path = FOLDER) -> bool:
    """Measure what is not measured yet."""
    results = Results("imports", settings, folder)
    for what, words in STARTS.items():
        if not list(results.find(way=what)):
            seconds = [_start(words) for _ in range(settings.rounds + 1)]
            results.add({"way": what, "seconds": seconds[1:]})
    return True


def _start(words: tuple[str, ...]) -> float:
    started = time.perf_counter()
    subprocess.run([PYTHON, *words], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return round(time.perf_counter() - started, 4)
