"""Records of jobs that are done: what Snakemake looks at, and where the results are named."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rmutils.artifacts import roots
from rmutils.errors import NotStored, UserError
from rmutils.files import keeping
from rmutils.models.hub import fetched, hub_id_of
from rmutils.paths import cache_dir
from rmutils.study.plan import Job, Plan
from rmutils.study.stages import STAGES, Record
from rmutils.training.means import Means

RESULTS = ("train", "evaluate", "design")
"""Stages whose results the book shows. The others only lead there."""

LEFT_OUT = "left out"


def home(profile: str) -> Path:
    """Folder of a study's plan and records."""
    return cache_dir() / "studies" / profile


def record_of(folder: Path, name: str) -> Path:
    """The record of a job."""
    return folder / f"{name}.json"


def carry_out(jobs: Plan, folder: Path, name: str, *, threads: int) -> None:
    """Do a job and leave its record."""
    job = jobs[name]
    workers = job.means.workers(job.resources.gpu or threads)
    _write(folder, name, STAGES[job.stage](job, _told(folder, jobs, name), "auto", workers))


def settle(jobs: Plan, folder: Path) -> None:
    """Bring the records in line with what is stored, before anything runs.

    A record whose result has gone goes, too. A result that is stored without a record, as those
    that ship with the project, gets one; and so do all jobs that nothing is left to do for.
    """
    for name in jobs:
        path = record_of(folder, name)
        if path.exists():
            told = _read(path)
            if LEFT_OUT in told or not all(map(_stored, told.get("artifacts", ()))):
                path.unlink()
    done = {name for name in jobs if record_of(folder, name).exists()}
    here = _Here()
    for name, job in jobs.items():
        if job.stage not in RESULTS or name in done or not here.has_all_of(job):
            continue
        if all(needed in done for needed in job.needs if jobs[needed].stage in RESULTS):
            with suppress(NotStored):
                told = STAGES[job.stage](job, _told(folder, jobs, name), "never", 1)
                _write(folder, name, told, old=True)
                done.add(name)
    wanted: set[str] = set()
    for name, job in reversed(jobs.items()):
        if name in done:
            continue
        if job.stage in RESULTS or name in wanted:
            wanted.update(job.needs)
        else:
            _write(folder, name, {LEFT_OUT: "what it leads to is stored"}, old=True)


def results_of(jobs: Plan, folder: Path) -> dict[str, list[str]]:
    """Names of the stored results, by job."""
    return {name: _read(record_of(folder, name))["artifacts"] for name, job in jobs.items()
            if job.stage in RESULTS}


class _Here:
    """What this machine knows: of a model of the hub that was never fetched, and without vLLM of
    what it said, nothing can be looked up."""

    def __init__(self):
        self.known: dict[str | Means, bool] = {}

    def has_all_of(self, job: Job) -> bool:
        if job.stage == "design":
            return True
        run = job.run
        names = {job.model, *((run.synthesizer, run.smaller) if run else ())} - {None}
        return all([*(self._of(name, _model_is_here) for name in sorted(names)),
                    self._of(job.means, _engine_is_here)])

    def _of(self, what: str | Means, look: Callable[..., bool]) -> bool:
        if what not in self.known:
            self.known[what] = look(what)
        return self.known[what]


def _model_is_here(name: str) -> bool:
    hub_id = hub_id_of(name)
    return hub_id is None or fetched(hub_id)


def _engine_is_here(means: Means) -> bool:
    try:
        means.inputs()
    except UserError:
        return False
    return True


def _told(folder: Path, jobs: Plan, name: str) -> Record:
    """What the jobs before have told; nothing of those that are not done."""
    paths = [record_of(folder, needed) for needed in jobs[name].needs]
    return {key: value for path in paths if path.exists() for key, value in _read(path).items()}


def _read(path: Path) -> Record:
    return json.loads(path.read_text(encoding="utf-8"))


def _stored(artifact: str) -> bool:
    return any((root / artifact).is_dir() for root in roots())


def _write(folder: Path, name: str, told: Record, *, old: bool = False) -> None:
    """Whole or not at all. An old one never makes Snakemake run what comes after it."""
    path = record_of(folder, name)
    scratch = path.with_suffix(".tmp")
    with keeping(folder, f"the record of {name}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        if old:
            os.utime(scratch, (0, 0))
        os.replace(scratch, path)
