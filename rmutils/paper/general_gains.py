"""Table 6 once more: each gain, with what rounding and chance may have added to it."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from rmutils.evaluation.general.harness import BENCHMARKS
from rmutils.paper.printed import Printed
from rmutils.paper.tables import PAPER, TABLES, read_records

TABLE = 6


def general_gains(source: str = "en", folder: Path = PAPER) -> pd.DataFrame:
    """What RetMask changed in the paper's benchmarks, in points of 0 to 100.

    The table has no intervals. As a yardstick, `chance` is half a 95 % interval of the gain under
    the assumption that each question is a coin of its own that falls right with the printed share,
    before and after independently of one another. The same questions were asked both times, which
    makes chance smaller; a single training, sampled answers or answers that are found differently
    in a response make it larger.

    Parameters
    ----------
    source : {"en", "ja"}

    Returns
    -------
    DataFrame
        `model`, `benchmark`, `before`, `after`, `gain`, `low` and `high` (what the printed digits
        leave open), `questions` and `chance` (missing for MT-Bench, whose marks are no shares).
    """
    cells = {(r["group"], r["column"], r["row"]): Printed.read(r["value"]) * 100
             for r in read_records(TABLES, folder)
             if (r["source"], r["table"]) == (source, str(TABLE))}
    rows = []
    for model, benchmark, row in cells:
        if row == "Before":
            before, after = cells[model, benchmark, row], cells[model, benchmark, "After"]
            gain = after - before
            known = BENCHMARKS.get(benchmark)
            rows.append((model, benchmark, *map(float, (before, after, gain, gain.low, gain.high)),
                         known and known.questions, known and _chance(
                             float(before) / 100, float(after) / 100, known.questions)))
    columns = ["model", "benchmark", "before", "after", "gain", "low", "high", "questions",
               "chance"]
    return pd.DataFrame(rows, columns=columns)


def _chance(before: float, after: float, questions: int) -> float:
    variance = (before * (1 - before) + after * (1 - after)) / questions
    return 100 * 1.96 * math.sqrt(variance)
