"""Install what requirements.lock names into .venv; `make` calls it, and `py .ci\\install.py` does.

With STICK=FOLDER in the environment, or from the copy of this file on a stick that `make stick`
wrote, everything comes from there and nothing from a network. From a stick, the sources are first
copied to `retmask-reproduced` in the current folder. Needs only Python itself.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
NO_NETWORK = ("from versions: none", "Connection", "connection", "resolve", "NameResolution")
"""Words of pip where it reaches no index."""


def steps(root: Path, stick: Path | None) -> list[list[str]]:
    """Return what pip is told, one call after the other.

    torch is not in the lock: its builds come from different places.
    """
    ours = ["--no-deps", "--no-build-isolation", "-e", str(root)]
    if stick:
        wheels = stick / "wheels"
        offline = ["--no-index", "--find-links", str(wheels)]
        return [[*offline, "--no-deps", "--require-hashes", "-r", str(wheels / "stick.lock")],
                [*offline, *ours]]
    torch = re.search(r'"(torch==[^"]+)"', (root / "pyproject.toml").read_text("utf-8"))[1]
    index = os.environ.get("TORCH_INDEX")
    return [["--no-deps", "--require-hashes", "-r", str(root / "requirements.lock")],
            [torch, *(["--no-deps", "--index-url", index] if index else [])], ours]


def install(root: Path, stick: Path | None) -> str:
    """Make .venv, or bring it up to date; return why not, empty if it was.

    Without the stamp it may be half installed and is made anew; with an old stamp it counts as half
    installed until it is up to date. Two thirds of the packages' code are never imported, so what
    is used is compiled when it is first imported.
    """
    folder = root / ".venv"
    stamp, log = folder / ".complete", folder / "pip.log"
    if stamp.exists():
        stamp.unlink()
    else:
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    print(f"Installing what {'the stick has' if stick else 'requirements.lock names'} into .venv; "
          "this takes minutes (.venv/pip.log) ...", flush=True)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    with log.open("a+", encoding="utf-8") as file:
        for words in steps(root, stick):
            if subprocess.run([str(python), "-m", "pip", "install", "--no-compile", *words],
                              stdout=file, stderr=subprocess.STDOUT).returncode:
                file.seek(0)
                return _why(file.read(), stick)
    if stick:
        for model in (stick / "models").iterdir():  # its own message says what is wrong with one
            subprocess.run([str(python), "-m", "rmutils", "models", "fetch", model.name,
                            "--from", str(model)], stdout=subprocess.DEVNULL)
    stamp.touch()
    return ""


def _why(log: str, stick: Path | None) -> str:
    last = "\n".join(log.splitlines()[-5:])
    if stick or not any(words in last for words in NO_NETWORK):
        return last
    return (f"pip reaches no package index ({log.splitlines()[-1]}).\nWithout a network: run `make "
            "stick` on a machine that has one, bring the folder here and run `make book "
            "STICK=FOLDER`.")


def wrong_python(stick: Path) -> str:
    """Say that the stick has packages for another Python, if it has; they fit one version only."""
    lock = (stick / "wheels" / "stick.lock").read_text(encoding="utf-8")
    wanted = re.search(r"Python (3\.\d+)", lock)[1]
    mine = "{}.{}".format(*sys.version_info[:2])
    return "" if mine == wanted else (
        f"The stick holds packages for Python {wanted}, and this is {mine}. Name that one: "
        f"`python{wanted} {shlex.quote(sys.argv[0])}`, or `make book STICK=... "
        f"PYTHON=python{wanted}`.")


def main() -> str:
    """Install; return why that failed, empty if it did not."""
    on_stick = (HERE / "wheels").is_dir()
    stick = HERE if on_stick else Path(os.environ["STICK"]) if os.environ.get("STICK") else None
    if stick and not (stick / "wheels" / "stick.lock").is_file():
        return f"{stick} is no folder that `make stick` wrote: it has no wheels/stick.lock."
    if stick and (wrong := wrong_python(stick)):
        return wrong
    root = Path("retmask-reproduced").resolve() if on_stick else HERE.parent
    if on_stick and not root.exists():
        shutil.copytree(stick / "sources", root)
    if why := install(root, stick.resolve() if stick else None):
        return why
    if on_stick:
        build = ("make book" if os.name != "nt"
                 else r".venv\Scripts\python -m rmutils.book.site.build")
        print(f"Done. Now `cd {root}`, then `{build}`.")
    return ""


if __name__ == "__main__":
    sys.exit(main() or 0)
