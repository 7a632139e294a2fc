"""What the chapter on speed says of the times of other ways, and of a goal that was missed."""

from __future__ import annotations

from functools import cache

import pandas as pd

from rmutils.book.chapters.speed import measurements
from rmutils.book.findings.registry import Measured, declare
from rmutils.stats import Interval


@cache
def _times() -> pd.DataFrame:
    return measurements.times_of_ours().set_index(["group", "way"])


@declare("times-of-ours", unit="times", place="fig-speed-ways", otherwise=(
    "{way} takes {value} times as long {ci} as rmutils."))
def times_of_ours(group: str, way: str) -> Measured:
    """Seconds of another way over those of ours."""
    return Measured(Interval(*_times().loc[(group, way), measurements.VALUE].astype(float)), [],
                    words={"way": way})


@declare("growth-beside-reading", unit="percent", place="fig-speed-length", otherwise=(
    "From the shortest text to the longest, our time grows by {value} % more {ci} than that of "
    "plain reading: {verdict}."))
def growth_beside_reading() -> Measured:
    """How much more a case's time grows with its length than that of plain reading."""
    ends = measurements.reading_growth(measurements.load("detection"))
    return Measured(Interval(*(100 * (end - 1) for end in ends)), [])
