"""Which jobs a study has, and what each asks of a cluster."""

import json
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from rmutils.book.jobs.studies import Asked, Study
from rmutils.core.config import Config, digest
from rmutils.heads import DetectConfig
from rmutils.models import REGISTRY
from rmutils.pipeline.retmask import RetMaskConfig, resolved
from rmutils.preference.responses import BACKENDS
from rmutils.preference.strategies import STRATEGIES
from rmutils.training.compute_backend import ComputeBackend

Count = Annotated[int, Field(ge=0)]


class Resources(Config):
    """Resources of one job."""

    threads: Count = 1
    """Cores; without a GPU, one for each process that answers."""
    mem_mb: Count = 3000
    runtime: Count = 60
    """Minutes; after these the cluster ends the job, and the next try goes on where it was."""
    gpu: Count = 0
    """GPUs of all nodes together."""
    nodes: Annotated[int, Field(ge=1)] = 1


_LIGHT = Resources(runtime=15)  # resources of steps that only read what is stored
_TEACHING = {"design": Resources(threads=2, runtime=240)}
_REAL = Resources(threads=2, mem_mb=6000, runtime=720)
"""135M parameters on two cores, as the book's own runs."""
_LARGE = {
    "detect": Resources(threads=4, mem_mb=48000, runtime=4 * 60, gpu=1),
    "generate": Resources(threads=4, mem_mb=48000, runtime=36 * 60, gpu=1),
    "pairs": Resources(threads=4, mem_mb=48000, runtime=12 * 60, gpu=1),
    "train": Resources(threads=16, mem_mb=256000, runtime=24 * 60, gpu=4),
    "evaluate": Resources(threads=4, mem_mb=48000, runtime=24 * 60, gpu=1),
}
"""Appendix A: detection "finishes in 2 GPU hours (NVIDIA H100)", "response generation [...] in 12
and 36 GPU hours", trainings "on either 4 x NVIDIA H100 GPUs or 8 x NVIDIA H200 GPUs, where all runs
finish within 24 hours". Of evaluation and main memory the paper does not speak: those are ours."""

OF_PROCESS = {"zero1": 45000, "zero2": 45000, "fsdp": 80000}
"""MB of the machine's memory for each process of a shared training, by its settings: eight billion
weights in float32 until they are shared out, under FSDP with those of the reference."""
OF_ENGINE, BESIDES = 25000, 60000
"""For each engine, which is handed the weights by a process of its own; and for the process that
starts them all, with its pairs."""


def resources_of(stage: str, model: str, backend: ComputeBackend | None = None) -> Resources:
    """Return what a stage needs for a teaching model, the real small one, or a large one."""
    found = _usual(stage, model)
    if backend and stage == "train" and (launch := backend.launch):
        return found.changed({"gpu": launch.gpus * launch.nodes, "nodes": launch.nodes,
                              "mem_mb": OF_PROCESS[launch.settings] * launch.gpus + BESIDES})
    if backend and stage == "generate" and BACKENDS[backend.engine].own_gpus:
        return found.changed({"gpu": backend.engines * backend.tensor_parallel,
                              "threads": found.threads * backend.engines,
                              "mem_mb": OF_ENGINE * backend.engines + BESIDES})
    return found


def _usual(stage: str, model: str) -> Resources:
    if stage in ("fetch", "mask"):
        return _LIGHT
    spec = REGISTRY.get(model)
    if stage == "design" or spec and spec.seed is not None:
        return _TEACHING.get(stage, Resources())
    return _REAL if spec and spec.wheel else _LARGE[stage]


Stage = Literal["fetch", "detect", "mask", "generate", "pairs", "train", "evaluate", "design"]


class Job(Config):
    """One job of a plan."""

    stage: Stage
    model: str
    """The one that is trained in the end; of `fetch` and `detect` the one at hand; of `design` the
    name of the design."""
    needs: tuple[str, ...] = ()
    """Names of the jobs that come before."""
    run: RetMaskConfig | None = None
    """The run that it belongs to, or the first of these; None for what comes before any."""
    side: Literal[0, 1] = 0
    """Side of `generate`: the chosen or the rejected one."""
    evaluation: Asked | None = None
    compute_backend: ComputeBackend = ComputeBackend()
    resources: Resources


LABEL = 120  # longest part of a job's name that is to be read
Plan = dict[str, Job]  # jobs by name (`stage/label`), those that others need first


def plan(study: Study) -> Plan:
    """All jobs of a study."""
    jobs: Plan = {}
    for model, runs in study.runs.items():
        backend = study.compute_backends.get(model, ComputeBackend())
        trained = {None: _fetch(jobs, model)}
        trained |= {run: _train(jobs, model, resolved(model, run), backend) for run in runs}
        for evaluation in study.evaluations[model]:
            for run, before in trained.items():
                if evaluation.asks(run):
                    label = f"{model}-{run.strategy}-{run.seed}" if run else model
                    _add(jobs, "evaluate", label, [before, _values(evaluation.config)], model=model,
                         needs=(before,), run=run and resolved(model, run),
                         evaluation=evaluation.config, compute_backend=backend)
    for name in study.designs:
        _add(jobs, "design", name, [name], model=name)
    return jobs


def _add(jobs: Plan, stage: Stage, label: str, key: Any, **what: Any) -> str:
    """Name of the job with this key, which is added unless it is there."""
    label = label if len(label) < LABEL else f"...{label[-LABEL:]}"  # of folders in folders
    plain = re.sub(r"[^\w.]+", "-", label).strip("-")
    end = f".{digest(json.loads(json.dumps(key, default=str)))[:8]}"
    for name, job in jobs.items():
        if job.stage == stage and name.endswith(end):
            return name
    resources = resources_of(stage, what["model"], what.get("compute_backend"))
    jobs[f"{stage}/{plain}{end}"] = Job(stage=stage, resources=resources, **what)
    return f"{stage}/{plain}{end}"


def _fetch(jobs: Plan, model: str) -> str:
    local = [] if model in REGISTRY else _state(model)
    return _add(jobs, "fetch", model, [model, local] if local else model, model=model)


def _train(jobs: Plan, model: str, run: RetMaskConfig, backend: ComputeBackend) -> str:
    """A training with all that comes before it."""
    author, strategy = run.synthesizer or model, STRATEGIES[run.strategy]
    fetched = {name: _fetch(jobs, name) for name in (model, author, run.smaller) if name}
    texts = _own_texts(run.detect)
    detect = [_values(run.detect) | texts, *map(_state, texts.values())]
    detected = {name: _add(jobs, "detect", name, [fetched[name], detect], model=name,
                           needs=(fetched[name],), run=run) for name in {model, author}}
    own = [_state(run.source)] if run.source.endswith(".jsonl") else []
    outside = [*STRATEGIES.origins([run.strategy]).items()]
    masked = ()
    if policy := strategy.policy:
        drawn = None if policy == "retrieval" else run.seed
        label = f"{author}-{policy}" + (f"-{drawn}" if drawn is not None else "")
        masked = (_add(jobs, "mask", label, [detected[author], policy, run.tau, drawn, *outside],
                       model=model, needs=(detected[author],), run=run),)
    said = []
    how = backend.model_dump(include={"engine", "judge"}, exclude_defaults=True)
    how |= BACKENDS.origins([backend.engine])
    other = [how] if how else []
    for side, config in enumerate(strategy.sides(run.responses.changed({"seed": run.seed}))):
        who = run.smaller if strategy.smaller and side else author
        before = masked if side and masked else (fetched[who], fetched[author])
        what = f"{who}-{run.seed}-{strategy.policy if side and masked else 'whole'}"
        said.append(_add(
            jobs, "generate", what,
            [before, run.source, run.instructions, run.seed, config.model_dump(), *other, *own],
            model=model, needs=tuple(dict.fromkeys(before)), run=run, side=side,
            compute_backend=backend))
    paired = _add(jobs, "pairs", f"{author}-{run.strategy}-{run.seed}",
                  [said or [run.strategy, run.instructions, run.seed], strategy.reasoning,
                   *outside], model=model,
                  needs=(*said, *masked) or (fetched[author],), run=run,
                  compute_backend=backend)
    return _add(jobs, "train", f"{model}-{run.strategy}-{run.seed}",
                [fetched[model], paired, sorted(detected.values()), _values(run)], model=model,
                needs=(paired, *sorted(detected.values())), run=run, compute_backend=backend)


def _values(config: Config) -> dict[str, Any]:
    """Return the values of a configuration, with the code of plug-ins that it uses."""
    return config.model_dump() | config.outside()


def _own_texts(config: DetectConfig) -> dict[str, str]:
    """Haystack and needles of one's own, which are no part of a configuration's JSON."""
    return {name: str(path.absolute()) for name in ("haystack", "needle_file")
            if (path := getattr(config, name))}


def _state(path: str) -> list[tuple[str, int, int]]:
    """Sizes and times of a file, or of those of a folder: other ones are other jobs."""
    top = Path(path)
    files = [top] if top.is_file() else sorted(f for f in top.rglob("*") if f.is_file())
    return [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files]


def write(jobs: Plan, folder: Path) -> Path:
    """Keep a plan as JSON: Snakemake reads it without loading torch."""
    text = {name: job.model_dump(mode="json") for name, job in jobs.items()}
    for name, job in jobs.items():
        if job.run:
            text[name]["run"]["detect"] |= _own_texts(job.run.detect)
    path, scratch = (folder / f"plan-{digest(text)[:8]}.{end}" for end in ("json", "tmp"))
    folder.mkdir(parents=True, exist_ok=True)
    scratch.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")
    os.replace(scratch, path)
    return path


def read(path: Path) -> Plan:
    """A plan that `write` wrote."""
    jobs = json.loads(path.read_text(encoding="utf-8"))
    return {name: Job(**job) for name, job in jobs.items()}
