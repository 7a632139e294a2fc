"""Experiments: what is planned, what is stored of it, and how the rest is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, NamedTuple, Self, TypeVar

import pandas as pd

from rmutils.core.config import Config, run_notebook
from rmutils.core.errors import NotStored, UserError
from rmutils.core.files import parse_yaml, read_text, sha256
from rmutils.core.paths import PLANS
from rmutils.core.results import Artifact, Compute, Stage, read_tables


@dataclass(frozen=True)
class Plan:
    """A plan of an experiment, as its file has it."""

    name: str
    # the first 16 digits of the file's SHA-256; results name it in their facts, as `plan`
    digest: str
    content: dict[str, Any]

    def deviations(self, artifacts: Iterable[Artifact]) -> list[str]:
        """Say which results were not made by this plan, in a sentence each."""
        plans = [(a.name, a.manifest["facts"].get("plan", "none")) for a in artifacts]
        return [f"{name} was made by plan {plan}, not by {self.digest}."
                for name, plan in plans if plan != self.digest]


def load_plan(name: str) -> Plan:
    """Read `data/plans/NAME.yml`."""
    path = PLANS / f"{name}.yml"
    if not path.exists():
        raise UserError(f"there is no plan {name}: {path} is no file.")
    return Plan(name, sha256(path)[:16], deepcopy(_content(read_text(path), str(path))))


@cache
def _content(text: str, name: str) -> Any:
    """Parse a plan, which takes long and is asked for by each of its runs."""
    return parse_yaml(text, name)


class LeftOut(UserError):
    """A model that cannot be part of an experiment, by the rules of its plan."""


class Run(NamedTuple):
    """A run whose configuration does not name its model."""

    model: str
    config: Any


R = TypeVar("R")
T = TypeVar("T")
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Runs(Generic[R, T]):
    """The runs of an experiment, as far as they are stored."""

    names: tuple[str, ...]  # what the parts of a key are called: `model` and `seed`, say
    planned: dict[Key, R]  # key -> run, in the order of the plan
    # key -> its result: an `Artifact`, or something that has one as `artifact`
    stored: dict[Key, T]
    missing: dict[Key, str]  # key -> the command that computes the run
    left_out: dict[str, str]  # model -> why its runs are left out
    deviations: list[str]  # what is not as the plan says, in a sentence each

    @property
    def artifacts(self) -> list[Artifact]:
        results: Iterable[Any] = self.stored.values()
        return [getattr(one, "artifact", one) for one in results]

    @property
    def seconds(self) -> list[float]:
        """What each stored run took by its manifest, with steps that it found stored."""
        manifests = [artifact.manifest for artifact in self.artifacts]
        return [max(m["seconds"], sum(m["facts"].get("step_seconds", {}).values()))
                for m in manifests]

    def table(self, name: str) -> pd.DataFrame:
        """Return a table of all runs that have it, with the parts of their keys as columns."""
        parts = []
        for key, artifact in zip(self.stored, self.artifacts, strict=True):
            if (path := artifact.path(f"{name}.parquet")).exists():
                rows = pd.read_parquet(path)
                parts.append(rows.assign(**{column: [part] * len(rows) for column, part
                                            in zip(self.names, key, strict=True)}))
        return pd.concat(parts, ignore_index=True)

    def by_model(self) -> dict[str, tuple[Mapping[str, pd.DataFrame], Artifact]]:
        """Return the tables of each run, and its result; of an experiment with a run per model."""
        return {key[0]: (read_tables(artifact.folder), artifact)
                for key, artifact in zip(self.stored, self.artifacts, strict=True)}


@dataclass(frozen=True, kw_only=True)
class Experiment(Generic[R, T]):
    """What a run of an experiment is, and how it is computed."""

    name: str
    config: type[Config]  # of a run; it has a `model`, or stands beside one in a `Run`
    plan: str | Plan  # the file in `data/plans`
    # yields the runs of a plan in the order in which they are made
    planned: Callable[[Plan], Iterable[R]]
    # attributes that tell runs apart, as `retmask.seed`; in tables the column `seed`
    keys: tuple[str, ...]
    # Writes the files of a run into a folder and returns facts for its manifest; called again with
    # the same folder after a kill. None: runs are results of another kind, which a subclass
    # obtains.
    make: Callable[[R, Path], dict[str, Any]] | None = None
    # all else that a run's result depends on, as hashes by name
    inputs: Callable[[R], dict[str, str]] = lambda run: {}
    # how a run's folder is called among those of its model
    label: Callable[[R], str] = lambda run: ""
    notebook: str  # the one that computes missing runs, and its parameter that says so
    parameter: str
    # raised whenever the code would give another result for the same configuration
    version: int = 1

    @property
    def stage(self) -> Stage[Any]:
        """Where its results are kept."""
        return Stage(self.name, self.version)

    def read_plan(self) -> Plan:
        return load_plan(self.plan) if isinstance(self.plan, str) else self.plan

    def by_plan(self, plan: Plan) -> Self:
        """Return the same experiment with another plan."""
        return replace(self, plan=plan)

    def key(self, run: R) -> Key:
        """Return what tells a run apart."""
        return tuple(attrgetter(name)(run) for name in self.keys)

    def runs(self) -> dict[Key, R]:
        """Return all planned runs by their keys; raise UserError for a gap or a run twice."""
        plan, found = self.read_plan(), dict[Key, R]()
        try:
            for run in self.planned(plan):
                if found.setdefault(key := self.key(run), run) is not run:
                    raise UserError(f"data/plans/{plan.name}.yml: {key} is planned twice.")
        except KeyError as error:
            raise UserError(f"data/plans/{plan.name}.yml: {error} is missing.") from error
        return found

    @property
    def command(self) -> str:
        """The line that computes all missing runs."""
        return run_notebook(self.notebook, {self.parameter: "auto"})

    def command_of(self, run: R) -> str:
        """Return the line that computes a run."""
        return self.command

    def obtain(self, run: R, *, compute: Compute = "auto") -> T:
        """Look a run up, or compute it; raises NotStored or LeftOut."""
        make, facts = self.make, {"plan": self.read_plan().digest}
        assert make
        artifact: Any = self.stage.obtain_folder(
            run.config if isinstance(run, Run) else run,  # type: ignore[arg-type]
            self.inputs(run), lambda folder: make(run, folder) | facts, compute=compute,
            command=self.command_of(run), model=attrgetter("model")(run), label=self.label(run))
        if reason := artifact.manifest["facts"].get("left_out"):
            raise LeftOut(reason)
        found: T = artifact
        return found

    def deviations(self, artifacts: list[Artifact]) -> list[str]:
        """Say which results were made by another plan; those of another kind name none."""
        return self.read_plan().deviations(artifacts) if self.make else []

    def collect(self, *, compute: Compute = "never") -> Runs[R, T]:
        """Look all planned runs up, and compute the missing ones unless `compute="never"`."""
        planned = self.runs()
        found = Runs[R, T](tuple(name.rpartition(".")[2] for name in self.keys), planned, {}, {},
                           {}, [])
        for key, run in planned.items():
            if (model := attrgetter("model")(run)) in found.left_out:
                continue
            try:
                found.stored[key] = self.obtain(run, compute=compute)
            except NotStored:
                found.missing[key] = self.command_of(run)
            except LeftOut as reason:
                found.left_out[model] = str(reason)
        return replace(found, deviations=[*self.deviations(found.artifacts),
                                          *found.left_out.values()])
