"""Running a study, on this machine or on a cluster, up to its results or to the book."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from rmutils.core import paths
from rmutils.core.errors import UserError
from rmutils.site.build import LOCAL, only_build, run_graph
from rmutils.site.dependencies import chapters
from rmutils.site.steps import HTML, RESULTS, clock
from rmutils.study.jobs import home, settle
from rmutils.study.plan import plan, write
from rmutils.study.studies import study_of


def run_study(
    profile: str, *, root: Path = paths.ROOT, on: str = "local", book: bool = True,
    changes: Mapping[str, str] | None = None,
) -> None:
    """Do what is left of a study; one that was stopped goes on.

    Parameters
    ----------
    profile : str
        A name of `rmutils.study.studies.STUDIES`, and of a profile of the notebooks.
    root : Path
        The project whose notebooks and book are made.
    on : str
        A Snakemake profile: the name of a folder in `profiles/`, or a folder of your own.
    book : bool
        Run the notebooks and build the pages afterwards.
    changes : mapping, optional
        Parameters of the study.

    Raises
    ------
    UserError
        There is no such study or profile, or a notebook is not usable; nothing was started.
    BuildFailed
        A job failed. What the others gave is kept.
    """
    where = _where(on)
    chapters(root, profile)
    jobs, folder = plan(study_of(profile, changes)), home(profile)
    started = time.monotonic()
    with only_build(root) as lock:
        planned = write(jobs, folder)
        settle(jobs, folder)
        options = [] if book else ["results"]
        if where == LOCAL:
            options += ["--resources", f"mem_mb={psutil.virtual_memory().total // 2**20}",
                        "accelerated=1"]
        run_graph(root, lock, {"profile": profile, "plan": str(planned)}, *options,
                  where=where)
    made = HTML / "index.html" if book else RESULTS
    print(f"The study {profile} is complete, after {clock(started)}: {root / made}")


def _where(on: str) -> Path:
    for folder in (paths.ROOT / "profiles" / on, Path(on).absolute()):
        if (folder / "config.yaml").is_file():
            return folder
    known = ", ".join(sorted(p.name for p in (paths.ROOT / "profiles").iterdir()))
    raise UserError(f"--on {on}: neither one of {known} nor a folder with a config.yaml.")
