"""What section 5.3 says about the gain in retrieval scores, and what follows from its numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from rmutils.paper.head_checks import MASKED, MEAN_SCORE, HeadNumbers
from rmutils.paper.printed import Printed
from rmutils.paper.tables import PAPER, load_published_scores

ONE = Printed.exact(1)


def score_gains(model: str = "Llama-3.1-8B-Instruct", folder: Path = PAPER) -> pd.DataFrame:
    """The gain of the mean score, shared out between masked and other heads.

    The section gives gains, but not what the masked heads had before. That is taken from the
    authors' published scores: their highest heads, as many as were masked.

    Returns
    -------
    DataFrame
        `quantity`, `value`, `low`, `high` (the range that the printed digits leave open), `source`.

        - `gain of the mean`: after less before.
        - `gain of the mean from both groups`: the gains of masked and other heads, weighted.
        - `relative gain of the mean`, a share of the mean before.
        - `share of the gain in masked heads`, of the gain added up over all heads.
        - `share of the scores in masked heads`, of all scores added up, before.
        - `relative gain of masked heads`, `relative gain of other heads`: shares of what each group
          had before.
    """
    rows = [(name, *map(float, (n.value, n.low, n.high)), source)
            for name, n, source in _quantities(model, folder)]
    return pd.DataFrame(rows, columns=["quantity", "value", "low", "high", "source"])


def _quantities(model: str, folder: Path) -> Iterator[tuple[str, Printed, str]]:
    numbers = HeadNumbers(folder)
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
    scores = load_published_scores(folder)
    scores = scores.loc[scores["model"] == model, "mean"].sort_values(ascending=False)
    top, rest = scores.iloc[:count], scores.iloc[count:]
    yield ("share of the scores in masked heads", Printed.exact(float(top.sum() / scores.sum())),
           "published")
    yield "relative gain of masked heads", masked / Printed.exact(top.mean()), with_published
    yield "relative gain of other heads", other / Printed.exact(rest.mean()), with_published
