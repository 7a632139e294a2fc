"""What the benchmarks have measured (`python -m benchmarks --help`), and ratios of it.

Times are compared by their geometric means, so that a ratio is the other way round for the other
way to do it. Intervals come from the measurements of one run on one machine: they say how much
these scatter, not how another machine would do.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rmutils import paths
from rmutils.errors import NotStored
from rmutils.stats import cluster_bootstrap, expansion, percentiles

FOLDER = paths.DATA / "benchmarks"
REFERENCE = "two-phase"
"""The way whose tokens and counts the others must have: the published algorithm."""


@dataclass(frozen=True)
class Benchmark:
    """The results of one benchmark.

    Attributes
    ----------
    rows : list of dict
        A measurement each.
    settings, environment : dict
        What was asked for, and on which machine with which versions.
    command : str
        What makes it.
    """

    rows: list[dict]
    settings: dict
    environment: dict
    command: str

    def find(self, **key: object) -> list[dict]:
        """Rows that have these values and did not fail."""
        return [row for row in self.rows if key.items() <= row.items() and "failed" not in row]

    @property
    def made(self) -> dict[str, str]:
        """For `rmutils.report.how_made`."""
        env = self.environment
        others = {row["way"]: row["version"] for row in self.rows if "version" in row}
        return {
            "command": self.command,
            "settings": ", ".join(f"{k} = {v}" for k, v in self.settings.items()),
            "machine": env["hardware"],
            "versions": ", ".join(f"{k} {v}" for k, v in (env["packages"] | others).items()),
            "commit": env["commit"] or "unknown", "made": env["created"],
        }


def load(name: str, folder: Path = FOLDER) -> Benchmark:
    """Read the results of a benchmark.

    Raises
    ------
    NotStored
        There are none; with the command that makes them.
    """
    path = folder / f"{name}.json"
    if not path.exists():
        raise NotStored(f"{name} is not measured yet. Measure it: `python -m benchmarks {name}`.")
    record = json.loads(path.read_text(encoding="utf-8"))
    return Benchmark(record["rows"], record["settings"], record["environment"], record["command"])


def seconds_of(row: dict) -> list[float]:
    """Seconds per case of each sample of a row: prefill and decoding together."""
    return [a + b for a, b in zip(row["prefill"], row["decode"], strict=True)]


def middle(samples: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean with a 95 % interval, which is NaN for a single sample."""
    return _interval(_logs(samples), np.mean(np.log(samples)), len(samples) > 1)


def ratio(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
    """How many times as much `a` is as `b`, by geometric means, with a 95 % interval.

    Samples are drawn independently of each other. NaN for the interval if one of the two is single.
    """
    return _interval(_logs(a, 1) - _logs(b, 2), np.mean(np.log(a)) - np.mean(np.log(b)),
                     min(len(a), len(b)) > 1)


def _logs(samples: Sequence[float], seed: int = 0) -> np.ndarray:
    """Means of logarithms under resampling, spread as far as so few samples ask for."""
    logs = np.log(np.asarray(samples, dtype=float))
    draws = cluster_bootstrap(logs, None, seed=seed)
    return logs.mean() + (draws - logs.mean()) * (expansion(len(logs)) if len(logs) > 1 else 1)


def _interval(draws: np.ndarray, mean: float, known: bool) -> tuple[float, float, float]:
    low, high = np.exp(percentiles(draws)) if known else (np.nan, np.nan)
    return float(np.exp(mean)), float(low), float(high)
