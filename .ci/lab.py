"""Pin what JupyterLab needs beside the packages of requirements.lock; called by `make lock`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements-lab.lock"
WANTED = ["jupyterlab>=4,<4.6", "jupyterlab-myst>=2,<3"]
"""jupyterlab-myst 2.7 lacks the collaboration model (ydoc 4) of JupyterLab 4.6."""
HEAD = """\
# What `make lab` adds to .venv: JupyterLab and what it needs, made by `make lock`.
"""


def main() -> None:
    below = ROOT / "requirements.lock"
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "install",
                        "--dry-run", "--ignore-installed", "--quiet", "--report", report,
                        "-c", below, *WANTED], check=True)
        found = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    pins = {re.sub(r"[-_.]+", "-", m["name"]).lower(): m["version"] for m in found}
    held = set(re.findall(r"^([\w-]+)==", below.read_text(), re.MULTILINE))
    names = sorted({*pins} - held)
    LOCK.write_text(HEAD + "".join(f"{name}=={pins[name]}\n" for name in names))


if __name__ == "__main__":
    main()
