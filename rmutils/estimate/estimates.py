"""An estimate: the steps of a run with their seconds, and its memory and disk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rmutils.core import paths
from rmutils.estimate.notebook_costs import START, Costs, Part
from rmutils.estimate.notebook_costs import parameters as size_of
from rmutils.models.fetch import fetched, hub_id_of
from rmutils.models.registry import REGISTRY
from rmutils.site.notebooks import RUNS

BYTES, HALF = 4, 2
"""Bytes of a weight: in memory, where models run in float32 on a CPU; in the files of the hub."""
OWN_COPY = 2_000_000
"""Bytes of the executed notebook, at most."""


@dataclass(frozen=True)
class Step:
    """A part of the run, its seconds, and how they were found."""

    what: str
    seconds: float
    why: str


@dataclass(frozen=True)
class Estimate:
    """What a run will cost on this machine: seconds, and memory and disk in bytes."""

    notebook: str
    steps: tuple[Step, ...]
    memory: int
    disk: int
    slowness: float

    @property
    def seconds(self) -> float:
        return sum(step.seconds for step in self.steps)


def estimate(costs: Costs, changed: Mapping[str, Any], *, slowness: float = 1.0) -> Estimate:
    """What a run of a notebook with other parameters will cost.

    Parameters
    ----------
    costs : Costs
    changed : mapping
        Checked parameters that are not the notebook's own.
    slowness : float
        Of this machine, as a multiple of the recorded one's seconds.
    """
    values = costs.own | dict(changed)
    steps = [Step(START, costs.rates[START] * slowness, "is always there")]
    computed = False
    for part in costs.parts:
        why = _spared(costs, part, values)
        units = part.units(values)
        seconds = 0.0 if why else units * costs.rates[part.kind] * slowness
        computed = computed or bool(part.when and not why)
        steps.append(Step(part.what, seconds, why or _derived(costs, part, units)))
    added = max((run.disk for run in costs.measured), default=0) if computed else 0
    return Estimate(costs.notebook.stem, tuple(steps), _memory(costs, values),
                    OWN_COPY + added + sum(map(_fetched, _models(costs, values))), slowness)


def _spared(costs: Costs, part: Part, values: Mapping[str, Any]) -> str | None:
    """Why a part is not computed; None if it is."""
    choice = values[part.when] if part.when else "always"
    if choice == "never":
        return f"{part.when} is never"
    if choice == "auto" and costs.comes(part, values):
        return "its result comes with the book"
    if choice == "auto" and any(all(run.get(name) == values[name] for name in part.depends)
                                for run in _earlier(costs.notebook.stem, part)):
        return "its result is stored by an earlier run"
    return None


def _earlier(notebook: str, part: Part) -> Iterator[dict]:
    """Parameters of the runs that computed or found a part, and left it in the cache."""
    for root in paths.caches():
        file = root / RUNS
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            run = json.loads(line)
            if run["notebook"] == notebook and run["parameters"].get(part.when) != "never":
                yield run["parameters"]


def _derived(costs: Costs, part: Part, units: float) -> str:
    usual = part.units(costs.own)
    rate = f"{units:,.4g} units of work at {1000 * costs.rates[part.kind]:.3g} ms"
    return f"{part.work} = {rate}" + (
        f"; {units / usual:.3g} times the notebook's own" if usual and units != usual else "")


def _models(costs: Costs, values: Mapping[str, Any]) -> set[str]:
    """Names of the models that a run computes with."""
    names = {name for part in costs.computed(values) for name in part.depends}
    return {values[name] for name in names if isinstance(values[name], str) and values[name]
            and (values[name] in REGISTRY or name in ("model", "checkpoint"))}


def _memory(costs: Costs, values: Mapping[str, Any]) -> int:
    """That of the recorded run whose largest model is nearest in size, and the difference."""
    def largest(values: Mapping[str, Any]) -> float:
        return max((size_of(name) or 0 for name in _models(costs, values)), default=0.0)

    size = largest(values)
    memory, nearest = min(
        ((run.memory, largest(costs.own | run.given)) for run in costs.measured),
        key=lambda found: (abs(found[1] - size), -found[0]))
    return round(memory + BYTES * (size - nearest))


def _fetched(name: str) -> int:
    """Bytes of a model that is not on this machine yet."""
    spec = REGISTRY.get(name)
    if spec and spec.wheel:
        there = any((root / "models" / name).is_dir() for root in paths.caches())
        return 0 if there else spec.download
    hub_id = hub_id_of(name)
    return round(HALF * (size_of(name) or 0)) if hub_id and not fetched(hub_id) else 0
