"""What the chapter on larger models measures; all else on its page is derived by formulas."""

from __future__ import annotations

import pandas as pd

from rmutils.book.chapters.scale.step_costs import prediction_ratio
from rmutils.book.findings.registry import Measured, declare
from rmutils.stats import Interval


@declare("reading-time-ratio", unit="times", place="fig-scale-clock", otherwise=(
    "The longest text takes {value} times {ci} as long as the work of {what} predicts."))
def reading_time_ratio(times: pd.DataFrame, work: dict[int, float], what: str) -> Measured:
    """Seconds to read the longest text over those that the shorter ones predict by their work."""
    ratio, (low, high), _ = prediction_ratio(times, work)
    return Measured(Interval(ratio, low, high), [], times["round"].nunique(), words={"what": what})
