"""Try the package as somebody has it who never saw the clone: `python .ci/package.py`, minutes.

The sdist is made from the clone and the wheel from the sdist. Each is installed by pip into a fresh
environment of this Python, with what it asks for, and finds the retrieval heads of `tiny-llama`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DETECT = ["detect", "tiny-llama", "--lengths", "128", "--depths", "0.5", "--needles", "2", "--save"]


def main() -> int:
    """Try both; exit status 1 if they give other scores."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        venv.create(here / "fresh", with_pip=True)
        python = here / "fresh/bin/python"

        def run(*words: str | Path, **env: str) -> None:
            subprocess.run([python, "-P", "-m", *words], cwd=here, check=True,
                           env={**os.environ, **env}, stdout=subprocess.DEVNULL)

        run("pip", "install", "--quiet", "build")
        run("build", "--outdir", here, ROOT)
        for kind in ("whl", "tar.gz"):
            run("pip", "install", "--quiet", next(here.glob(f"*.{kind}")))
            run("rmutils", *DETECT, f"wu={kind}.json", RMUTILS_CACHE=str(here / kind))
            run("pip", "uninstall", "--quiet", "--yes", "rmutils")
        same = (here / "whl.json").read_bytes() == (here / "tar.gz.json").read_bytes()
    print(f"Python {sys.version.split()[0]}: wheel and sdist",
          "find the same heads." if same else "find other heads.")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
