"""The book built in a clone: cold, with nothing changed, with one notebook changed, and with a
module changed that no chapter imports.

Models and shipped results are there beforehand; the cache of results is empty at first.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.measuring import PYTHON
from benchmarks.records import Results
from rmutils.book.chapters.speed import FOLDER
from rmutils.core import paths
from rmutils.core.config import Config


class Settings(Config):
    """Which book, and the notebook and the module that are changed in it."""

    profile: str = "embedded"
    edited: str = "10_claims"
    module: str = "doctor"


QUICK = {"profile": "smoke"}


def measure(settings: Settings = Settings(), folder: Path = FOLDER) -> bool:
    """Measure, unless all four are measured. Raises CalledProcessError if a build fails."""
    results = Results("book", settings, folder)
    if len(results.rows) == 4:
        return True
    results.rows.clear()
    with tempfile.TemporaryDirectory() as scratch:
        project, cache = Path(scratch, "project"), Path(scratch, "cache")
        subprocess.run(["git", "clone", "--quiet", paths.ROOT, project], check=True)
        cache.mkdir()
        (cache / "models").symlink_to(paths.cache_dir() / "models")
        rows = [{"way": way, **_build(project, cache, settings.profile)}
                for way in ("cold", "warm")]
        _change_notebook(project / "notebooks" / f"{settings.edited}.ipynb")
        rows.append({"way": "one notebook changed", **_build(project, cache, settings.profile)})
        with (project / "rmutils" / f"{settings.module}.py").open("a", encoding="utf-8") as file:
            file.write("\n# One more comment.\n")
        rows.append({"way": "one unrelated module changed",
                     **_build(project, cache, settings.profile)})
    for row in rows:  # only now: what is written here is an input of chapters
        results.add(row)
    return True


def _build(project: Path, cache: Path, profile: str) -> dict:
    """Build by the package of the clone."""
    started = time.perf_counter()
    done = subprocess.run(
        [PYTHON, "-m", "rmutils.book.site.build", "--profile", profile], check=True, cwd=project,
        env={**os.environ, "RMUTILS_CACHE": str(cache), "PYTHONPATH": str(project)},
        stdout=subprocess.PIPE, text=True).stdout
    steps = [line.split()[0] for line in done.splitlines() if " done in " in line]
    return {"seconds": [round(time.perf_counter() - started, 1)], "steps": len(steps)}


def _change_notebook(notebook: Path) -> None:
    """Add a line to the notebook's first cell."""
    content = json.loads(notebook.read_text(encoding="utf-8"))
    content["cells"][0]["source"] += ["\n\nOne more sentence."]
    notebook.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
