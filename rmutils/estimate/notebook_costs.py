"""How fast this machine is, beside the one on which the recorded runs were made.

How large a model is, from its name or its files, without loading it.

The parts of a notebook's run, what multiplies in each, and seconds per unit from past runs.
"""

from __future__ import annotations

import ast
import json
import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy.optimize import nnls

from rmutils.core import paths
from rmutils.core.config import Config
from rmutils.core.errors import UserError
from rmutils.models.registry import REGISTRY
from rmutils.site.parameters import defaults

TIMINGS = paths.DATA / "timings.json"
"""Recorded runs, and what `_work` took on their machine."""


def _work() -> None:
    """A fixed piece of work like that of a notebook: Python, products of matrices, functions."""
    sum(i * i for i in range(400_000))
    a = np.linspace(0, 1, 48 * 48).reshape(48, 48)
    for _ in range(400):
        a = np.tanh(a @ a / 48)  # from 65 x 65 on OpenBLAS takes several cores, and waits for them
    np.exp(np.linspace(0, 1, 400_000)).sum()


def work_seconds(clock=time.perf_counter) -> float:
    """Seconds of that piece, the median of nine."""
    taken = []
    for _ in range(9):
        started = clock()
        _work()
        taken.append(clock() - started)
    return float(np.median(taken))


def slowness(clock=time.perf_counter) -> float:
    """How many times as long a run takes on this machine just now as on that of the record.

    2 is half as fast. Other work on the machine counts. It is the square root of what the piece of
    work says, since a glance of a third of a second sees more of the ups and downs of a shared
    machine than a run feels. That is a rule of thumb, chosen after looking at runs of one machine;
    on one that is steadily several times slower, it says too little.
    """
    reference = json.loads(TIMINGS.read_text(encoding="utf-8"))["work_seconds"]
    return math.sqrt(work_seconds(clock) / reference)


SMALL = 135e6
"""Weights of smollm2-135m, to which `weight` is anchored."""
SLOWER = 13
"""Per token, smollm2-135m takes about so many times as long as a teaching model; of the teaching
models none takes more than twice as long as another."""


def parameters(name: str) -> float | None:
    """Number of weights, roughly; None if neither name nor files tell."""
    if name in REGISTRY and REGISTRY[name].seed is not None:
        return 1e6
    folder = Path(name)
    if folder.is_dir() and (sizes := [p.stat().st_size for p in folder.glob("*.safetensors")]):
        return sum(sizes) / 2  # the usual half precision
    if found := re.search(r"(\d+(?:\.\d+)?)([bm])(?![a-z])", folder.name.lower()):
        return float(found[1]) * {"b": 1e9, "m": 1e6}[found[2]]
    return None


def weight(name: str) -> float:
    """Time per token as a multiple of a teaching model's."""
    size = parameters(name)
    return max(1.0, SLOWER * (SMALL if size is None else size) / SMALL)


COSTS = paths.NOTEBOOKS / "costs.yml"

FUNCTIONS = {"len": len, "sum": sum, "min": min, "max": max, "weight": weight}
"""What `work` may call besides arithmetic."""

SHARED = 0.05
"""How strongly kinds that the runs cannot tell apart are drawn to each other, a ridge."""

START = "start, tables and figures"


class Part(Config):
    """One part of a run.

    Attributes
    ----------
    what : str
        What it does, in words.
    kind : str
        Parts of one kind have the same seconds per unit of work.
    work : str
        How much, as arithmetic over the notebook's parameters.
    when : str, optional
        The parameter (auto, always, never) that says whether it is computed; without it, it always
        is.
    also : tuple of str
        Parameters, besides those in `work`, that its result depends on.
    cells : tuple of str
        The notebook's cells, by id, that do nothing else; their time is the part's.
    shipped : bool
        Its result for the notebook's own parameters comes with the book.
    seconds : float, optional
        Seconds with the notebook's own parameters, where no recorded run computes the part.
    """

    what: str
    kind: str
    work: str
    when: str | None = None
    also: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()
    shipped: bool = False
    seconds: float | None = None

    @property
    def tree(self) -> ast.expr:
        return ast.parse(self.work, mode="eval").body

    @property
    def depends(self) -> list[str]:
        """Parameters that its result depends on."""
        named = {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)}
        return sorted((named - set(FUNCTIONS)) | set(self.also))

    def units(self, parameters: Mapping[str, Any]) -> float:
        """Its work with these parameters."""
        code = compile(ast.Expression(self.tree), self.work, "eval")
        return float(eval(code, {"__builtins__": {}}, {**FUNCTIONS, **parameters}))


class Measured(Config):
    """A run that was made to know what it costs.

    Attributes
    ----------
    notebook : str
    given : dict
        Parameters other than the notebook's own.
    seconds : float
        Processor seconds, on one core.
    parts : dict
        How many of them were spent in the cells of each part.
    memory, disk : int
        Peak memory, and what was added to the cache, in bytes.
    stored : bool
        True where all results were in the cache already.
    """

    notebook: str
    given: dict[str, Any] = {}
    seconds: float
    parts: dict[str, float] = {}
    memory: int
    disk: int
    stored: bool = False


@dataclass(frozen=True)
class Costs:
    """What is known of one notebook's cost."""

    notebook: Path
    parts: tuple[Part, ...]
    measured: tuple[Measured, ...]

    @cached_property
    def own(self) -> dict[str, Any]:
        """The notebook's own parameters."""
        return defaults(self.notebook)

    @cached_property
    def rates(self) -> dict[str, float]:
        """Seconds per unit of work by kind, and `START` in seconds.

        Least squares of relative errors, none below zero; where the runs cannot tell kinds apart,
        these share what is to be explained. Of a kind that no recorded run computes, the seconds
        are those that the part states.
        """
        stated = {p.kind: p.seconds / p.units(self.own) for p in self.parts if p.seconds}
        kinds = [START, *dict.fromkeys(p.kind for p in self.parts if p.kind not in stated)]
        rows = [[work.get(kind, 0.0) / seconds for kind in kinds]
                for run in self.measured for work, seconds in self._equations(run, stated)]
        scale = np.maximum(np.max(rows, axis=0), 1e-300)
        found, _ = nnls(np.vstack([rows / scale, SHARED * np.eye(len(kinds))]),
                        np.array([1.0] * len(rows) + [0.0] * len(kinds)))
        return dict(zip(kinds, (found / scale).tolist(), strict=True)) | stated

    def _equations(
        self, run: Measured, stated: Mapping[str, float]
    ) -> Iterator[tuple[dict[str, float], float]]:
        """Work by kind, and the seconds that it took: of parts with cells of their own, and of the
        rest together."""
        rest, seconds = {START: 1.0}, run.seconds
        values = self.own | run.given
        for part in self.computed(values, stored=run.stored):
            units = part.units(values)
            spent = run.parts.get(part.what)
            if part.kind in stated:
                seconds -= spent or units * stated[part.kind]
            elif spent:
                seconds -= spent
                yield {part.kind: units}, spent
            else:
                rest[part.kind] = rest.get(part.kind, 0.0) + units
        yield rest, max(seconds, 0.1 * run.seconds)

    def computed(self, values: Mapping[str, Any], *, stored: bool = False) -> list[Part]:
        """The parts that a run computes which finds nothing stored, or all that can be."""
        def wanted(part: Part) -> bool:
            choice = values[part.when] if part.when else "always"
            return choice == "always" or (
                choice == "auto" and not stored and not self.comes(part, values))

        return [part for part in self.parts if wanted(part)]

    def comes(self, part: Part, parameters: Mapping[str, Any]) -> bool:
        """True if a part's result comes with the book."""
        return part.shipped and all(parameters[name] == self.own[name] for name in part.depends)


def load_costs(notebook: Path) -> Costs:
    """What `notebooks/costs.yml` and the record say of a notebook.

    Raises
    ------
    UserError
        They do not name it.
    """
    known = yaml.safe_load(COSTS.read_text(encoding="utf-8"))
    runs = [Measured(**run) for run in json.loads(TIMINGS.read_text(encoding="utf-8"))["runs"]
            if run["notebook"] == notebook.stem]
    if notebook.stem not in known or not runs:
        raise UserError(f"nothing is known of what {notebook.stem} costs: {COSTS.name} names its "
                        "parts, and `python benchmarks/notebooks.py` measures it")
    return Costs(notebook, tuple(Part(**part) for part in known[notebook.stem] or ()), tuple(runs))
