"""The environment of a result: versions, commit, machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from datetime import UTC, datetime
from typing import Any

import psutil

from rmutils.core.paths import CHECKOUT, ROOT

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "trl", "peft", "vllm")


def environment() -> dict[str, Any]:
    """Return package versions, git commit and hardware as JSON: no path, no name of a person."""
    return {
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "commit": commit(),
        "hardware": hardware(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def commit() -> str | None:
    """Short git commit of the checkout, `+` appended if files differ from it; None without git."""
    head = _git("rev-parse", "--short=12", "HEAD")
    return head and head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")


def hardware() -> str:
    """One line: processor, cores, memory and, where there are any, accelerators."""
    parts = [_processor(), f"{len(os.sched_getaffinity(0))} cores" if hasattr(
        os, "sched_getaffinity") else f"{os.cpu_count()} cores",
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB memory"]
    import torch  # here, because importing it takes seconds

    if torch.cuda.is_available():
        parts.append(f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}")
    return ", ".join(parts)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(x.split(":", 1)[1].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def share_cores() -> None:
    """Take as many threads as cores are idle just now, and let waiting threads sleep."""
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if "OMP_NUM_THREADS" not in os.environ:
        idle = psutil.cpu_count() * (1 - psutil.cpu_percent(0.2) / 100)
        os.environ["OMP_NUM_THREADS"] = str(max(1, round(idle)))


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    if not CHECKOUT:  # ROOT may lie in another project's
        return None
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
