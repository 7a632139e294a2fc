"""Section 5.3 on the gain in retrieval scores, Table 6 and sparsity, as far as printed."""

import math
from collections.abc import Iterator

import pandas as pd

from rmutils.evaluation.abilities.harness import BENCHMARKS
from rmutils.paper.head_checks import MASKED, MEAN_SCORE, HeadNumbers
from rmutils.paper.tables import (
    PAPER,
    TABLES,
    Printed,
    load_published_scores,
    load_published_summary,
    load_tables,
    read_records,
)

ONE = Printed.exact(1)


def score_gains() -> pd.DataFrame:
    """The gain of the mean score of Llama 3.1, shared out between masked and other heads."""
    rows = [(name, *map(float, (n.value, n.low, n.high)), source)
            for name, n, source in _quantities("Llama-3.1-8B-Instruct")]
    return pd.DataFrame(rows, columns=["quantity", "value", "low", "high", "source"])


def _quantities(model: str) -> Iterator[tuple[str, Printed, str]]:
    numbers = HeadNumbers(PAPER)
    before, after = (numbers.required(MEAN_SCORE, model, row)[0] for row in ("Before", "After"))
    masked, other = (numbers.required("mean gain in retrieval score", model, f"{which} heads")[0]
                     for which in ("masked", "other"))
    count, total = (int(n.value) for n in (numbers.required(MASKED, model)[0],
                                           numbers.heads[model]))
    printed, with_published = "printed", "printed and published"
    yield "gain of the mean", after - before, printed
    yield ("gain of the mean from both groups", (masked * count + other * (total - count)) / total,
           printed)
    yield "relative gain of the mean", after / before - 1, printed
    # Not masked / (masked + other): interval arithmetic does not know that both are the same.
    yield ("share of the gain in masked heads",
           ONE / (other * (total - count) / (masked * count) + 1), printed)
    scores = load_published_scores()
    scores = scores.loc[scores["model"] == model, "mean"].sort_values(ascending=False)
    top, rest = scores.iloc[:count], scores.iloc[count:]
    yield ("share of the scores in masked heads", Printed.exact(float(top.sum() / scores.sum())),
           "published")
    yield "relative gain of masked heads", masked / Printed.exact(top.mean()), with_published
    yield "relative gain of other heads", other / Printed.exact(rest.mean()), with_published


TABLE = 6


def general_gains(source: str = "en") -> pd.DataFrame:
    """Changes by RetMask in the paper's benchmarks, in points of 0 to 100."""
    cells = {(r["group"], r["column"], r["row"]): Printed.read(r["value"]) * 100
             for r in read_records(TABLES)
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


GAIN_TABLES = (1, 4)


def sparsity_gains(statistic: str = "gini") -> pd.DataFrame:
    """Sparsity of the published retrieval scores, and the printed gain by RetMask."""
    tables = load_tables()
    rows = tables[(tables["source"] == "en") & tables["table"].isin(GAIN_TABLES)
                  & tables["row"].isin(["Before", "RetMask"])]
    wide = rows.pivot_table(index=["group", "column"], columns="row", values="value", sort=False)
    gains = (wide["RetMask"] - wide["Before"]).groupby("group", sort=False).mean()
    summary = load_published_summary()
    spread = summary[summary["statistic"] == statistic].set_index("model")
    spread = spread.rename(columns={"value": "sparsity", "low": "sparsity_low",
                                    "high": "sparsity_high"})
    return gains.rename("gain").rename_axis("model").reset_index().join(
        spread[["sparsity", "sparsity_low", "sparsity_high"]], on="model")
