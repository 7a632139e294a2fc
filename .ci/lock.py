"""Write requirements.lock, requirements-lab.lock and conda's files; called by `make lock`.

uv finds the newest versions that pyproject.toml allows, for every system and Python at once, and
the hash of each of their files.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK_FILE = ROOT / "requirements.lock"
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
# {about}, made by `make lock`:
#   conda env create -f {file}.yml && conda activate {name}
{more}
name: {name}
channels:
  - conda-forge
dependencies:
  - python=3.11
  - pip
  - pip:
{pins}
      - -e .
"""
LAPTOP = {"file": "environment", "name": "rmutils", "about": "The same environment for conda",
          "more": "# vLLM is not in it: `make vllm` installs its build for CPUs, "
                  "environment-gpu.yml that for GPUs."}
CLUSTER = {"file": "environment-gpu", "name": "rmutils-gpu",
           "about": "The book's environment with vLLM, DeepSpeed and lm-eval, for GPUs",
           "more": "# Linux only. Its versions fit one another; no GPU here has run them yet."}


def pins(lock: str) -> dict[str, str]:
    """Return name -> requirement with its hashes, several lines, of what uv or a lock says."""
    blocks = re.findall(r"^(\S.*(?:\n +--hash.*)*)", re.sub(r"^#.*\n", "", lock, flags=re.M), re.M)
    found = {block.partition("==")[0]: block for block in blocks}
    if len(found) < len(blocks):
        raise SystemExit("uv found no one version of each package that suits every Python.")
    return found


def uv_compile(*words: str | Path, wanted: str = "") -> dict[str, str]:
    """Return the newest pins for some requirements, or a file of them."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet",
                        "uv"], check=True)
        return pins(subprocess.run(
            [python, "-m", "uv", "pip", "compile", "--quiet", "--python-version", "3.11",
             "--no-header", "--no-annotate", *words],
            input=wanted, stdout=subprocess.PIPE, text=True, check=True).stdout)


def resolve(*what: str | Path, wanted: str = "") -> dict[str, str]:
    """Return the pins for every system, with hashes; without torch and its GPU libraries.

    Of each package one version, also where newer Pythons could have a newer one.
    """
    found = uv_compile("--universal", "--fork-strategy", "fewest", "--generate-hashes", *what,
                       wanted=wanted)
    return {name: pin for name, pin in found.items() if not NOT_LOCKED.match(pin)}


def resolve_cluster() -> dict[str, str]:
    """Return the pins for Linux with GPUs: those of the lock, as far as vLLM's go with them."""
    with tempfile.TemporaryDirectory() as folder:
        preferred = Path(folder) / "pins.txt"
        shutil.copy(LOCK_FILE, preferred)
        uv_compile("--python-platform", "x86_64-manylinux_2_28", "--extra", "book", "--extra",
                   "vllm", "--extra", "paper", "--output-file", preferred, ROOT / "pyproject.toml")
        return pins(preferred.read_text("utf-8"))


def torch() -> str:
    """Return the requirement that names torch's version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return next(line for line in project["dependencies"] if line.startswith("torch=="))


def beside(wanted: Iterable[str]) -> str:
    """Return what some requirements add to the lock, a line or more for each pin."""
    locked = pins(LOCK_FILE.read_text("utf-8"))
    found = resolve("-", "--constraint", LOCK_FILE, wanted="\n".join([torch(), *wanted]))
    return "\n".join(pin for name, pin in found.items() if pin != locked.get(name))


def hashed(versions: Mapping[str, str]) -> list[str]:
    """Return pins with the hashes of all their files, in the given order."""
    found = resolve("--no-deps", "-", wanted="\n".join(
        f"{name}=={version}" for name, version in versions.items()))
    return [found[name] for name in versions]


def write_environment(conda: Mapping[str, str], lines: Iterable[str]) -> None:
    """Write a file of conda with its pins."""
    (ROOT / f"{conda['file']}.yml").write_text(ENVIRONMENT.format(**conda, pins="\n".join(
        f"      - {line}" for line in sorted(lines))), encoding="utf-8")


def main() -> None:
    """Write the four files."""
    locked = resolve("--extra", "dev", ROOT / "pyproject.toml")
    LOCK_FILE.write_text(LOCK.format(pins="\n".join(locked.values())), encoding="utf-8")
    (ROOT / "requirements-lab.lock").write_text(LAB_LOCK.format(pins=beside(LAB)),
                                                encoding="utf-8")
    write_environment(CLUSTER, resolve_cluster().values())
    write_environment(LAPTOP, [torch(), *(pin.partition(" \\")[0] for pin in locked.values())])


if __name__ == "__main__":
    sys.exit(main())
