"""Make .venv-bench, where TransformerLens and nnsight are, for `python -m benchmarks detection`.

It is laid over .venv like .venv-vllm (.ci/vllm.py): torch and transformers are those of .venv, so
that all ways are compared with the same versions. With `lock`: pin it anew.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET, LOCK = ROOT / ".venv-bench", ROOT / "requirements-bench.lock"
WANTED = ["transformer-lens", "nnsight"]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
HEAD = """\
# What .venv-bench has beside the packages of requirements.lock, made by `python .ci/bench.py lock`.
"""


def make() -> str | None:
    """Make the environment. Why not in one line, if it cannot be."""
    venv.create(TARGET, clear=True, symlinks=True)
    _lay_over()
    pip = subprocess.run([*PIP, "--python", TARGET, "install", "--no-deps", "-r", LOCK],
                         capture_output=True, text=True)
    check = pip.returncode == 0 and subprocess.run(
        [TARGET / "bin" / "python", "-c", "import nnsight, transformer_lens"],
        capture_output=True, text=True)
    if check and check.returncode == 0:
        return None
    told = ((check or pip).stderr.strip().splitlines() or ["pip says nothing"])[-1]
    return f"TransformerLens and nnsight cannot be used here: {told}"


def lock() -> None:
    """Write requirements-bench.lock: the newest ones that go with the packages of .venv."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        subprocess.run([*PIP, "install", "--dry-run", "--quiet", "--report", report, "--constraint",
                        ROOT / "requirements.lock", *WANTED], check=True)
        found = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    pins = sorted(f"{m['name'].lower().replace('_', '-')}=={m['version']}\n" for m in found)
    LOCK.write_text(HEAD + "".join(pins), encoding="utf-8")


def _lay_over() -> None:
    """The packages of the environment that runs this are found behind those of .venv-bench."""
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(TARGET)}))
    below = sysconfig.get_path("purelib")
    (site / "below.pth").write_text(f"import site; site.addsitedir({below!r})\n")


if __name__ == "__main__":
    sys.exit(lock() if sys.argv[1:] == ["lock"] else make())
