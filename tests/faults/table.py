"""What was tried, kept and lost, test by test: the table of the book's page on reliability.

A test says with the mark `fault` (kind, what) which fault it injects. It counts as one try for each
set of its arguments; one that tries more than once counts itself, with the fixture `tally`.
`RMUTILS_FAULTS=long make test ARGS='-m fault'` keeps the counts in data/faults.json; those of
faults that it did not try stay as they are.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from rmutils.core.environment import environment
from rmutils.core.paths import DATA

TABLE = DATA / "faults.json"
LONG = os.environ.get("RMUTILS_FAULTS") == "long"
COUNTS = ("tried", "kept", "lost")
MARK, TALLY = "fault", "tally"


class Collector:
    """Adds up what the tests tell, also those in other processes of the session."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str, str], Counter] = {}
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        told = {name: [v for n, v in report.user_properties if n == name] for name in (MARK, TALLY)}
        if report.skipped or not told[MARK] or report.passed and report.when != "call":
            return
        (kind, what), = told[MARK]
        outcome = {"what": what, "tried": 1, "kept": int(report.passed),
                   "lost": int(not report.passed)}
        tallies = told[TALLY] or [outcome]
        for tally in tallies:
            row = self.rows.setdefault((kind, tally["what"], _test(report.nodeid)), Counter())
            row.update({name: tally[name] for name in COUNTS},
                       seconds=self.seconds[report.nodeid] / len(tallies))

    def pytest_sessionfinish(self) -> None:
        if self.rows:
            keep({"kind": kind, "what": what, "test": test, **{name: row[name] for name in COUNTS},
                  "seconds": round(row["seconds"], 1)}
                 for (kind, what, test), row in self.rows.items())


def keep(rows: Iterable[dict]) -> None:
    """Put rows into the table in place of earlier ones of the same faults."""
    rows = sorted(rows, key=_fault)
    anew = set(map(_fault, rows))
    before = json.loads(TABLE.read_text(encoding="utf-8"))["runs"] if TABLE.exists() else []
    for run in before:
        run["faults"] = [row for row in run["faults"] if _fault(row) not in anew]
    fuzz = os.environ.get("RMUTILS_FUZZ")
    command = " ".join([f"RMUTILS_FUZZ={fuzz}"] * bool(fuzz) + [
        "RMUTILS_FAULTS=long make test ARGS='-m fault'"])
    runs = [*filter(lambda run: run["faults"], before),
            {"environment": environment(), "command": command, "faults": rows}]
    TABLE.write_text(json.dumps({"runs": runs}, indent=1) + "\n", encoding="utf-8")


def mark(items: Iterable[pytest.Item]) -> None:
    """Let the reports of tests say what their marks say."""
    for item in items:
        if found := item.get_closest_marker(MARK):
            item.user_properties.append((MARK, found.args))


def tallying(properties: list[tuple[str, object]]) -> Callable[..., None]:
    """What the fixture `tally` gives: call it with `what`, `tried`, `kept` and `lost`."""
    return lambda **counts: properties.append((TALLY, counts))


def _fault(row: dict) -> tuple[str, str, str]:
    return row["kind"], row["what"], row["test"]


def _test(nodeid: str) -> str:
    return nodeid.partition("[")[0]
