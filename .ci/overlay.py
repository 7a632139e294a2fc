"""An environment laid over .venv: what it lacks it finds there, so both have the same versions."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


class Failed(Exception):
    """Why there is no environment, in one line."""


def make(target: Path, lock: Path) -> Path:
    """Make it anew with what a lock names, and tell where its packages are. Keeps pip.log.

    Raises
    ------
    Failed
        With pip's last words.
    """
    print(f"Installing what {lock.name} names into {target.name}; this takes a minute or two "
          f"({target.name}/pip.log) ...", flush=True)
    venv.create(target, clear=True, symlinks=True)
    log = target / "pip.log"
    with log.open("w") as out:
        pip = subprocess.run([*PIP, "--python", target, "install", "--no-deps", "--no-compile",
                              "--require-hashes", "-r", lock], stdout=out, stderr=out)
    if pip.returncode:
        raise Failed(_last_words(log.read_text()))
    return lay_over(target)


def lay_over(target: Path) -> Path:
    """Have an environment find in .venv what it lacks; tell where its own packages are."""
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(target)}))
    below = sysconfig.get_path("purelib")
    (site / "below.pth").write_text(f"import site; site.addsitedir({below!r})\n")
    return site


def check(target: Path, code: str) -> None:
    """Run a few lines there. Failed, with the last words of the error, if they do not."""
    run = subprocess.run([target / "bin" / "python", "-c", code], capture_output=True, text=True)
    if run.returncode:
        (target / "pip.log").write_text(run.stderr)
        raise Failed(_last_words(run.stderr))


def _last_words(log: str) -> str:
    return (log.strip().splitlines() or ["it ended without a word"])[-1]


def resolve(wanted: Sequence[str], *options: str | Path) -> dict[str, str]:
    """Return what pip would install for some requirements: name -> version."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        subprocess.run([*PIP, "install", "--dry-run", "--quiet", "--report", report, *options,
                        *wanted], check=True)
        found = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    return {m["name"].lower().replace("_", "-").replace(".", "-"): m["version"] for m in found}
