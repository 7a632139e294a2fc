"""What a comparison of methods comes to, with 95 % intervals over texts."""

from __future__ import annotations

import pandas as pd

from rmutils.stats import cluster_bootstrap, percentiles

ENDS = ["value", "low", "high"]


def shares(found: pd.DataFrame) -> pd.DataFrame:
    """Share of facts found.

    Parameters
    ----------
    found : DataFrame
        As in `rmutils.longcontext.extension_store.Extension`.

    Returns
    -------
    DataFrame
        `method`, `tokens`, `length`, `value`, `low`, `high`; methods in the order of `found`.
    """
    return _means(found, ["method", "tokens", "length"], "found")


def at_end(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of each method after its fine-tune."""
    return table[table["tokens"] == table.groupby("method")["tokens"].transform("max")]


def differences(found: pd.DataFrame, to: str) -> pd.DataFrame:
    """How much more each other method finds than this one after the fine-tune, on the same facts.

    Returns
    -------
    DataFrame
        `method`, `length`, `value` (share), `low`, `high`.
    """
    fact = ["length", "text", "depth"]
    ends = at_end(found).set_index(["method", *fact])["found"].astype(float)
    reference = ends.loc[to]
    rows = []
    for method in found["method"].unique():
        if method != to:
            less = (ends.loc[method] - reference).rename("difference").reset_index()
            rows.append(_means(less, ["length"], "difference").assign(method=method))
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(
        columns=["method", "length", *ENDS])


def gained(found: pd.DataFrame, method: str) -> pd.DataFrame:
    """How much more a method finds after its fine-tune than before it, on the same facts.

    Returns
    -------
    DataFrame
        `length`, `value` (share), `low`, `high`.
    """
    own = found[found["method"] == method]
    fact = ["length", "text", "depth"]
    before, after = (own[own["tokens"] == own["tokens"].agg(which)].set_index(fact)["found"]
                     .astype(float) for which in ("min", "max"))
    return _means((after - before).rename("difference").reset_index(), ["length"], "difference")


def loss_change(losses: pd.DataFrame, to: str) -> pd.DataFrame:
    """Loss of each method after its fine-tune less that of another one, by position.

    The texts are the same, so what makes one harder than another cancels.

    Parameters
    ----------
    losses : DataFrame
        As in `rmutils.longcontext.extension_store.Extension`.

    Returns
    -------
    DataFrame
        `method`, `position`, `value` (nats per token), `low`, `high`.
    """
    ends = at_end(losses).set_index(["method", "text", "position"])["loss"]
    less = ends - ends.loc[to].reindex(ends.index.droplevel("method")).to_numpy()
    return _means(less.reset_index(), ["method", "position"], "loss")


def _means(table: pd.DataFrame, by: list[str], column: str) -> pd.DataFrame:
    rows = []
    for key, part in table.groupby(by, sort=False):
        values = part[column].to_numpy(dtype=float)
        low, high = percentiles(cluster_bootstrap(values, part["text"].to_numpy()))
        rows.append({**dict(zip(by, key, strict=True)), "value": values.mean(),
                     "low": low, "high": high})
    return pd.DataFrame(rows)
