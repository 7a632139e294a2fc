"""Cost of a notebook's run: recorded seconds, scaled by the counts that matter."""

import ast
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from rmutils.book.chapters.contrast_without_training import CONTRASTED
from rmutils.book.chapters.data_and_training.engines import ENGINES
from rmutils.book.chapters.data_and_training.half_learned import HALF_LEARNED
from rmutils.book.chapters.data_and_training.half_learned_again import HALF_LEARNED_AGAIN
from rmutils.book.chapters.heads_at_work.cards import HEAD_CARDS
from rmutils.book.chapters.heads_at_work.experiment import HEADS_AT_WORK
from rmutils.book.chapters.is_it_causal.real_exchanges import REAL_EXCHANGES
from rmutils.book.chapters.masking_sweep.larger_sweeps import LARGER_SWEEPS
from rmutils.book.chapters.memory_by_heads import FOUND, MEMORY, MORE
from rmutils.book.chapters.ms_poe.experiment import POSITIONS, SCALES
from rmutils.book.chapters.olmo3_recipe.ablations import RECIPE_PARTS
from rmutils.book.chapters.olmo3_recipe.yarn_by_ruler import RULER
from rmutils.book.chapters.redirect_heads.experiment import FEW, REDIRECT
from rmutils.book.chapters.score_distribution.sparser_versions import SPARSITY_AND_GAIN
from rmutils.book.chapters.training_effect.half_masked import HALF_MASKED
from rmutils.book.chapters.training_effect.layer_matched_training import LAYER_MATCHED
from rmutils.book.chapters.training_effect.real_training import REAL_TRAINING
from rmutils.book.chapters.which_heads.pairs_from_other_heads import OTHER_PAIRS
from rmutils.book.experiments.thinking_twin import THINKING_TWIN
from rmutils.book.site.parameters import defaults
from rmutils.core import paths
from rmutils.core.config import DEVICE, Config
from rmutils.core.errors import UserError
from rmutils.core.experiment import Experiment, Runs
from rmutils.core.files import read_yaml
from rmutils.models.costs import PEAK, TIMINGS, parameters, to_fetch, weight
from rmutils.models.known_models import REGISTRY
from rmutils.models.loading import window_of

COSTS = paths.NOTEBOOKS / "costs.yml"
START = "start, tables and figures"
SHIPPED = "its result comes with the book"  # why a part is not computed
OWN_COPY = 2_000_000  # bytes of the executed notebook, at most
EXPERIMENTS: tuple[Experiment[Any, Any], ...] = (
    CONTRASTED, ENGINES, FEW, FOUND, HALF_LEARNED, HALF_LEARNED_AGAIN, HALF_MASKED, HEAD_CARDS,
    HEADS_AT_WORK, LARGER_SWEEPS, LAYER_MATCHED, MEMORY, MORE, OTHER_PAIRS, POSITIONS,
    REAL_EXCHANGES, REAL_TRAINING, RECIPE_PARTS, REDIRECT, RULER, SCALES, SPARSITY_AND_GAIN,
    THINKING_TWIN)
FUNCTIONS = {"len": len, "sum": sum, "min": min, "max": max, "weight": weight}
"""Functions that `by` may call."""


class Part(Config):
    """One part of a run."""

    what: str = START  # what it does, in words
    seconds: float  # with the notebook's own parameters, on one core of the recorded machine
    by: str = "1"  # arithmetic over the notebook's parameters that the seconds are proportional to
    # The parameter (auto, always, never) that says whether it is computed; without one, it always
    # is.
    when: str | None = None
    shipped: bool = False  # its result for the notebook's own parameters comes with the book
    ships_for: tuple[str, ...] = ()  # models for which its result comes with the book
    # Parameters, besides those in `by`, that a shipped result depends on.
    also: tuple[str, ...] = ()

    @property
    def depends(self) -> list[str]:
        """Parameters that its result depends on, as far as is declared."""
        named = {node.id for node in ast.walk(ast.parse(self.by)) if isinstance(node, ast.Name)}
        return sorted((named - set(FUNCTIONS)) | set(self.also))

    def units(self, values: Mapping[str, Any]) -> float:
        """Return `by` with these parameters."""
        return float(eval(self.by, {"__builtins__": {}}, {**FUNCTIONS, **values}))


class Measured(Config):
    """A recorded run: parameters other than the notebook's own, processor seconds on one core, peak
    memory, and what was added to the cache (bytes)."""

    notebook: str
    given: dict[str, Any] = {}
    seconds: float
    memory: int
    disk: int


@dataclass(frozen=True)
class Costs:
    """The parts of a notebook, and its recorded runs."""

    notebook: Path
    parts: tuple[Part, ...]
    measured: tuple[Measured, ...]

    @cached_property
    def own(self) -> dict[str, Any]:
        """The notebook's own parameters."""
        return defaults(self.notebook)

    def spared(self, part: Part, values: Mapping[str, Any]) -> str | None:
        """Return why a part is not computed; None if it is."""
        choice = values[part.when] if part.when else "always"
        if choice == "never":
            return f"{part.when} is never"
        if choice != "never" and any(values[name] in part.ships_for for name in part.depends
                                     if isinstance(values[name], str)):
            return SHIPPED
        if choice == "auto" and part.shipped and all(
                values[name] == self.own[name] for name in part.depends):
            return SHIPPED
        return None


def load_costs(notebook: Path) -> Costs:
    """Read what `notebooks/costs.yml` and the record say of a notebook."""
    known = read_yaml(COSTS)
    runs = [Measured(**run) for run in json.loads(TIMINGS.read_text(encoding="utf-8"))["runs"]
            if run["notebook"] == notebook.stem]
    if notebook.stem not in known or not runs:
        raise UserError(f"nothing is known of what {notebook.stem} costs: {COSTS.name} names its "
                        "parts, and `python benchmarks/notebooks.py` measures it")
    return Costs(notebook, tuple(Part(**part) for part in known[notebook.stem]), tuple(runs))


@dataclass(frozen=True)
class Step:
    """A part of the run, its seconds, and how they were found."""

    what: str
    seconds: float
    why: str


@dataclass(frozen=True)
class Estimate:
    """The cost of a run on this machine: seconds, and memory and disk in bytes."""

    notebook: str
    steps: tuple[Step, ...]
    memory: int
    disk: int
    slowness: float

    @property
    def seconds(self) -> float:
        return sum(step.seconds for step in self.steps)


def estimate(costs: Costs, changed: Mapping[str, Any], *, slowness: float = 1.0) -> Estimate:
    """Estimate the cost of a run with other parameters."""
    values = costs.own | dict(changed)
    check(costs, values)
    steps, computed = [], []
    for part in costs.parts:
        why = costs.spared(part, values)
        grown = part.units(values) / part.units(costs.own)
        computed += [] if why else [part]
        scaled = f", times {grown:.3g} for {' '.join(part.by.split())}" if grown != 1 else ""
        steps.append(Step(part.what, 0.0 if why else part.seconds * grown * slowness,
                          why or f"{part.seconds:g} s measured{scaled}"))
    planned = [Step(what, seconds * slowness, why) for what, seconds, why in
               planned_seconds(costs.notebook.stem, values)]
    added = max(r.disk for r in costs.measured) if planned or any(
        part.when for part in computed) else 0
    fetching = sum(map(to_fetch, models_of(costs, values)))
    return Estimate(costs.notebook.stem, (*steps, *planned), _memory(costs, values),
                    OWN_COPY + added + fetching, slowness)


def check(costs: Costs, values: Mapping[str, Any]) -> None:
    """Check that a run can be: its models exist, and their windows have room for its lengths."""
    for name in sorted(models_of(costs, values)):
        window = window_of(name)
        parts = [part for part in costs.parts if not part.shipped and name in map(
            values.get, part.depends) and costs.spared(part, values) is None]
        for part, key in product(parts, ("length", "lengths")):
            longest = max(np.ravel(values[key])) if key in part.depends else 0
            if window and longest >= window:
                raise UserError(f"{key}: {longest:,} tokens and an answer do not fit into the "
                                f"window of {name}, {window:,} tokens. Choose less.")


def models_of(costs: Costs, values: Mapping[str, Any]) -> set[str]:
    """Names of the models that a run computes with, unless its results come with the book."""
    return named_models({name: values[name] for part in costs.parts for name in part.depends
                         if costs.spared(part, values) is None})


def named_models(values: Mapping[str, Any]) -> set[str]:
    """Names of the models among parameters."""
    return {value for name, value in values.items() if isinstance(value, str) and value
            and (value in REGISTRY or name in ("model", "checkpoint"))}


def _memory(costs: Costs, values: Mapping[str, Any]) -> int:
    """The memory of the recorded run whose largest model is nearest in size, and the difference."""
    def largest(values: Mapping[str, Any]) -> float:
        return max((parameters(name) or 0 for name in models_of(costs, values)), default=0.0)

    size = largest(values)
    memory, nearest = min(((run.memory, largest(costs.own | run.given)) for run in costs.measured),
                          key=lambda found: (abs(found[1] - size), -found[0]))
    return round(memory + PEAK * (size - nearest))


def planned_seconds(notebook: str, values: Mapping[str, Any]) -> Iterator[tuple[str, float, str]]:
    """Yield the experiments that a notebook computes by these parameters: name, seconds, why."""
    for one in EXPERIMENTS:
        choice = values.get(one.parameter, "never")
        if one.notebook == notebook and choice != "never":
            runs = one.collect()
            todo = [*(runs.missing if choice == "auto" else runs.planned)]
            rate, where = seconds_by_weight(runs)
            seconds = rate * sum(weight(runs.planned[key].model) for key in todo)
            told = "by those that are stored and the models' sizes" + where
            yield f"runs of data/plans/{one.read_plan().name}.yml", seconds, (
                f"{len(todo)} of {len(runs.planned)} planned runs are to be computed" + (
                    "" if not todo else f", {told}" if rate else ", and none is stored to tell"))


def seconds_by_weight(runs: Runs[Any, Any]) -> tuple[float, str]:
    """Return what stored runs took for a model of weight 1, and where if on an accelerator."""
    rows = [(took, weight(runs.planned[key].model), artifact.manifest["environment"]["hardware"])
            for key, artifact, took in zip(runs.stored, runs.artifacts, runs.seconds, strict=True)]
    alone = [row for row in rows if " x " not in row[2]]
    took, weights, machines = zip(*(alone or rows), strict=True) if rows else ((), (), ())
    return (sum(took) / sum(weights) if rows else 0.0,
            f" (on {machines[0]})" if rows and not alone else "")


SMALLER = paths.NOTEBOOKS / "smaller.yml"
LIMIT = 1200  # seconds of one core of the recorded machine: ten minutes of two
LARGE = 4e8  # weights of a model from which chapters are cut; those of the book are smaller


@dataclass(frozen=True)
class Fitted:
    """A run that ends in minutes."""

    values: dict[str, Any]  # the parameters to run with, besides the notebook's own
    cut: dict[str, Any]  # those among them that are smaller than the notebook's own
    own: dict[str, Any]  # the notebook's own values of these
    seconds: float  # the estimate

    def cuts(self) -> str:
        """List what was cut, beside the chapter's own values; empty if nothing was."""
        return "; ".join(f"{name} {_short(value)} (chapter: {_short(self.own[name])})"
                         for name, value in self.cut.items())


def _short(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def fitted(costs: Costs, given: Mapping[str, Any]) -> Fitted:
    """Fit a run to `LIMIT`, if a large model makes it longer."""
    rows = read_yaml(SMALLER).get(costs.notebook.stem, [])
    cut: dict[str, Any] = {}

    def seconds() -> float:
        return estimate(costs, {**given, **cut}).seconds

    largest = max((parameters(name) or 0 for name in named_models(costs.own | dict(given))),
                  default=0)
    if largest >= LARGE and _on_a_cpu():
        for row in rows:
            if seconds() <= LIMIT and "compute" not in row:  # else there is nothing to show
                break
            cut |= {name: value for name, value in row.items() if name not in given}
    return Fitted({**given, **cut}, cut, {name: costs.own[name] for name in cut}, seconds())


def _on_a_cpu() -> bool:
    import torch

    return (os.environ.get(DEVICE) or ("cuda" if torch.cuda.is_available() else "cpu")) == "cpu"
