"""Write requirements.lock, requirements-lab.lock and environment.yml; called by `make lock`.

uv finds the newest versions that pyproject.toml allows, for every system and Python at once, and
the hash of each of their files.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAB = ["jupyterlab>=4,<4.6", "jupyterlab-myst>=2,<3"]
"""jupyterlab-myst 2.7 lacks the collaboration model (ydoc 4) of JupyterLab 4.6."""
NOT_LOCKED = re.compile(r"(torch|nvidia-.*|cuda-.*|triton)==")
"""torch's builds for CPUs and for CUDA come from different places, with different files, so no list
of hashes fits all; and torch alone knows which GPU libraries a machine needs."""

LOCK = """\
# Every distribution of the book's environment but torch, for every system, with the hashes of its
# files; made by `make lock` from pyproject.toml. torch, whose builds come from different places,
# is named there; it brings the GPU libraries that fit the machine.
{pins}
"""
LAB_LOCK = """\
# What `make lab` adds to .venv: JupyterLab and what it needs, made by `make lock`.
{pins}
"""
ENVIRONMENT = """\
# The same environment for conda, made by `make lock`:
#   conda env create -f environment.yml && conda activate rmutils
# vLLM is not in it: `make vllm` installs its build for CPUs, environment-gpu.yml that for GPUs.
name: rmutils
channels:
  - conda-forge
dependencies:
  - python=3.11
  - pip
  - pip:
{pins}
      - -e .
"""


def pins(lock: str) -> dict[str, str]:
    """Return name -> requirement with its hashes, several lines, of what uv or a lock says."""
    blocks = re.findall(r"^(\S.*(?:\n +--hash.*)*)", re.sub(r"^#.*\n", "", lock, flags=re.M), re.M)
    return {block.partition("==")[0]: block for block in blocks}


def resolve(*what: str | Path, wanted: str = "") -> dict[str, str]:
    """Return the newest pins for some requirements, or a file of them."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet",
                        "uv"], check=True)
        told = subprocess.run(
            [python, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--python-version",
             "3.11", "--generate-hashes", "--no-header", "--no-annotate", *what],
            input=wanted, stdout=subprocess.PIPE, text=True, check=True).stdout
    return {name: pin for name, pin in pins(told).items() if not NOT_LOCKED.match(pin)}


def main() -> None:
    """Write the three files."""
    locked = resolve("--extra", "dev", ROOT / "pyproject.toml")
    lock = ROOT / "requirements.lock"
    lock.write_text(LOCK.format(pins="\n".join(locked.values())), encoding="utf-8")
    lab = resolve("-", "--constraint", lock, wanted="\n".join(LAB))
    (ROOT / "requirements-lab.lock").write_text(LAB_LOCK.format(pins="\n".join(
        pin for name, pin in lab.items() if pin != locked.get(name))), encoding="utf-8")
    torch = next(line for line in tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))[
        "project"]["dependencies"] if line.startswith("torch=="))
    lines = [torch, *(pin.partition(" \\")[0] for pin in locked.values())]
    (ROOT / "environment.yml").write_text(ENVIRONMENT.format(pins="\n".join(
        f"      - {line}" for line in sorted(lines))), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
