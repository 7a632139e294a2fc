"""A chapter with a large model: smaller counts, so that it ends in minutes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from rmutils.book.jobs.notebook_costs import Costs, estimate, named_models
from rmutils.core import paths
from rmutils.core.config import DEVICE
from rmutils.models.costs import parameters

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
    rows = yaml.safe_load(SMALLER.read_text(encoding="utf-8")).get(costs.notebook.stem, [])
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
