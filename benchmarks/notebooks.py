"""Measure the runs of data/timings.json again, and compare them with what `rmutils estimate` says.

    python benchmarks/notebooks.py 01_preliminaries audit      # all of them without names

Each runs on one core with an empty cache, but for the models. The machine should have nothing else
to do. Where the estimate is far off, correct the seconds in notebooks/costs.yml.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import nbformat
import typer

from rmutils.book.jobs.notebook_costs import Measured, estimate, load_costs
from rmutils.core import paths
from rmutils.core.environment import environment
from rmutils.models.costs import TIMINGS, work_seconds


def measure(run: Measured, folder: Path) -> Measured:
    """Return the same run with what it took now; its results go to the cache in `folder`."""
    folder.mkdir(exist_ok=True)
    if not (folder / "models").exists():
        (folder / "models").symlink_to(paths.cache_dir() / "models")
    before, copy = _size(folder), folder.parent / "executed.ipynb"
    words = [word for name, value in run.given.items() for word in (
        "-p", name, value if isinstance(value, str) else json.dumps(value))]
    subprocess.run([sys.executable, "-m", "rmutils", "run", run.notebook, *words, "--output", copy],
                   check=True, env={**os.environ, "RMUTILS_CACHE": str(folder),
                                    "OMP_NUM_THREADS": "1"})
    record = nbformat.read(copy, as_version=4).metadata["rmutils"]
    return run.model_copy(update={
        "seconds": record["cpu_seconds"], "memory": record["memory"],
        "disk": _size(folder) - before})


def _size(folder: Path) -> int:
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file() and not f.is_symlink())


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Notebooks. All without names.")] = None,
) -> None:
    """Measure, and write data/timings.json after each run.

    How fast the machine is, is measured before each of all runs: shared ones are now faster, now
    slower, and the median of all that time belongs to all runs.
    """
    known = json.loads(TIMINGS.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as scratch:
        speeds = []
        for number, row in enumerate(known["runs"]):
            run = Measured(**row)
            if names and run.notebook not in names:
                continue
            if not names:
                speeds.append(work_seconds(time.process_time))
                known |= {"machine": environment()["hardware"],
                          "work_seconds": round(statistics.median(speeds), 4)}
            took = measure(run, Path(scratch, str(number)))
            known["runs"][number] = took.model_dump(exclude_defaults=True)
            costs = load_costs(paths.NOTEBOOKS / f"{run.notebook}.ipynb")
            said = estimate(costs, run.given).seconds
            print(f"{took} (estimate: {said:.0f} s)", flush=True)
            rows = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in known["runs"])
            head = json.dumps({k: v for k, v in known.items() if k != "runs"}, indent=1)
            TIMINGS.write_text(f'{head[:-2]},\n "runs": [\n{rows}\n ]\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
