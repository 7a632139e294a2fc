"""From answers under several variants to shares, differences and dips with 95 % intervals.

Questions (needles, passages) are resampled whole: answers to one question are alike, wherever its
document stands.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rmutils.comparisons import bootstrap_mean, compare
from rmutils.errors import UserError
from rmutils.stats import cluster_bootstrap, percentiles

PLAIN = "plain"
"""Name of the model's own attention in a comparison."""


def levels(table: pd.DataFrame, value: str, by: Sequence[str] = ()) -> pd.DataFrame:
    """Mean of a column under each variant.

    Parameters
    ----------
    table : DataFrame
        One of `rmutils.evaluation.variants.store.Compared.tables`.
    by : sequence of str
        Columns, such as `place`: a mean for each of their values.

    Returns
    -------
    DataFrame
        `variant`, the columns `by`, `value`, `low`, `high`, `samples`.
    """
    rows = []
    for keys, part in table.groupby(["variant", *by], sort=False):
        values = part[value].to_numpy(float)
        low, high = percentiles(cluster_bootstrap(values, part["question"].to_numpy()))
        rows.append((*keys, values.mean(), low, high, len(part)))
    return pd.DataFrame(rows, columns=["variant", *by, "value", "low", "high", "samples"])


def changes(table: pd.DataFrame, value: str, base: str = PLAIN) -> pd.DataFrame:
    """Each variant less the plain model, on the same samples.

    Returns
    -------
    DataFrame
        As from `rmutils.comparisons.compare`, with `variant` in place of `strategy`.
    """
    parts = [name for name in ("length", "question", "place") if name in table]
    samples = pd.DataFrame({
        "strategy": table["variant"], "seed": 0, "score": table[value],
        "sample": table[parts].astype(str).agg(" ".join, axis=1), "cluster": table["question"]})
    return compare(samples, base).rename(columns={"strategy": "variant"})


def dips(table: pd.DataFrame, base: str = PLAIN) -> pd.DataFrame:
    """How deep a curve over places sags: `correct` at both ends less `correct` between them.

    Parameters
    ----------
    table : DataFrame
        With three places or more; only the first and the last are ends.

    Returns
    -------
    DataFrame
        `variant`, `value`, `low`, `high`, and `change`, `change_low`, `change_high` against `base`
        on the same questions.

    Raises
    ------
    UserError
        Fewer than three places.
    """
    if (places := table["place"].unique()).size < 3:
        raise UserError("a curve sags between its ends: `places` has to name three places or more, "
                        f"not {', '.join(f'{place:g}' for place in places)} alone.")
    ends = table["place"].isin([table["place"].min(), table["place"].max()])
    means = table.assign(end=ends).pivot_table(
        index=["length", "question"], columns=["end", "variant"], values="correct", sort=False)
    sag = means[True] - means[False]
    questions = sag.index.get_level_values("question")
    return pd.DataFrame(
        [(name, *_difference(sag[name], questions), *_difference(sag[name] - sag[base], questions))
         for name in table["variant"].unique()],
        columns=["variant", "value", "low", "high", "change", "change_low", "change_high"])


def perplexities(texts: pd.DataFrame, base: str = PLAIN) -> pd.DataFrame:
    """Perplexity under each variant: the exponential of the mean of `nats` over texts.

    Returns
    -------
    DataFrame
        `variant`, `value`, `low`, `high`, `samples`, and `change`, `change_low`, `change_high`: the
        increase over `base` as a share of it.
    """
    found = levels(texts, "nats")
    found[["value", "low", "high"]] = np.exp(found[["value", "low", "high"]])
    against = changes(texts, "nats", base).set_index("variant")[["effect", "low", "high"]]
    against.columns = ["change", "change_low", "change_high"]
    return found.join(np.expm1(against), on="variant").fillna(dict.fromkeys(against, 0.0))


def _difference(values: pd.Series, clusters: Sequence[int]) -> tuple[float, float, float]:
    drawn = bootstrap_mean(values.to_numpy(float)[:, None], np.asarray(clusters))
    return float(drawn[0]), *map(float, percentiles(drawn[1:]))
