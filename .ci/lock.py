"""Write requirements.lock and environment.yml from pyproject.toml; called by `make lock`.

A fresh virtual environment gets the newest versions that pyproject.toml allows, with the extra
`dev`. What stands in it is the lock.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOT_LOCKED = re.compile(r"(rmutils|nvidia-.*|cuda-.*|triton)$")
"""torch alone knows which GPU libraries a machine needs."""

HELD_BACK = ["soupsieve<3.0.2"]
"""Later ones need Python 3.11.5; Debian 12 has 3.11.2."""

LOCK = """\
# Every distribution of the book's environment, made by `make lock` from pyproject.toml.
# torch brings the GPU libraries that fit the machine; they are not named here.
{pins}
"""
ENVIRONMENT = """\
# The same environment for conda, made by `make lock`:
#   conda env create -f environment.yml && conda activate rmutils
name: rmutils
channels:
  - conda-forge
dependencies:
  - python=3.11
  - pip
  - pip:
      - -c requirements.lock
{pins}
      - -e .
"""


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        pip = [python, "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--upgrade", "-e", f"{ROOT}[dev]", *HELD_BACK], check=True)
        listed = subprocess.run([*pip, "list", "--format=json"], check=True, capture_output=True)
    # A local version such as 2.13.0+cpu exists on one index only.
    pins = {canonical(d["name"]): d["version"].split("+")[0] for d in json.loads(listed.stdout)}
    lines = [f"{name}=={version}" for name, version in sorted(pins.items())
             if not NOT_LOCKED.match(name)]
    (ROOT / "requirements.lock").write_text(LOCK.format(pins="\n".join(lines)), encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"] + [line for extra in ("train", "book", "dev")
                                        for line in project["optional-dependencies"][extra]]
    direct = sorted({canonical(re.match(r"[\w.-]+", line)[0]) for line in wanted} - {"rmutils"})
    lines = [f"      - {name}=={pins[name]}" for name in direct]
    (ROOT / "environment.yml").write_text(ENVIRONMENT.format(pins="\n".join(lines)),
                                          encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
