"""Seconds and memory, each measured in a process of its own so that peaks do not mix (Linux)."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from rmutils.core.paths import ROOT

PYTHON, OTHERS = Path(sys.executable), ROOT / ".venv-bench/bin/python"
"""The environment of the project, and the one laid over it with the other libraries."""
KEPT_FREE = 0.1
"""Share of the free memory that a measurement may not take."""


@contextmanager
def watched() -> Iterator[dict]:
    """Fills in seconds, processor seconds, and MiB held before and at the peak."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    found = {"base_mib": _status("VmRSS")}
    started, worked = time.perf_counter(), time.process_time()
    yield found
    found |= {"wall_seconds": round(time.perf_counter() - started, 3),
              "cpu_seconds": round(time.process_time() - worked, 3),
              "peak_mib": _status("VmHWM")}


def _status(name: str) -> float:
    line = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return round(int(line[1]) / 1024, 1)


def stay_within_memory() -> None:
    """From here on a process that would take all memory gets an error, and the machine lives."""
    free = psutil.virtual_memory().available * (1 - KEPT_FREE)
    most = int(_status("VmData") * 2**20 + free)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def lines_of(python: Path, module: str, *words: str) -> Iterator[dict]:
    """Run a module; what it prints as JSON, line by line. One that fails is told of."""
    quiet = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled", "TOKENIZERS_PARALLELISM": "false"}
    with subprocess.Popen([python, "-m", module, *words], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, env={**os.environ, **quiet}) as process:
        for line in process.stdout:
            if line.startswith('{"'):  # a trainer prints its losses as Python does: {'loss': ...
                yield json.loads(line)
    if process.returncode:
        print(f"{module} {words[0]} ended with status {process.returncode}", file=sys.stderr)


@contextmanager
def copied(name: str) -> Iterator[str]:
    """A folder with the model, from which a process loads it in a second or two."""
    from rmutils.models import load_model  # here: llama.cpp's process must not have PyTorch, too

    with tempfile.TemporaryDirectory() as folder:
        lm = load_model(name)
        lm.model.save_pretrained(folder)
        lm.tokenizer.save_pretrained(folder)
        yield folder
