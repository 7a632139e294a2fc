"""The paper's own points of gain against sparsity (section 5.2), as far as it has published them.
"""

from __future__ import annotations

import pandas as pd

from rmutils.paper.tables import load_published_summary, load_tables

TABLES = (1, 4)


def sparsity_gains(statistic: str = "gini") -> pd.DataFrame:
    """Sparsity of the published retrieval scores, and the printed gain by RetMask.

    Parameters
    ----------
    statistic : str
        One of `rmutils.heads.sparsity.statistics`.

    Returns
    -------
    DataFrame
        `model`, `sparsity`, with `sparsity_low` and `sparsity_high` (over runs; missing where no
        scores are published), `gain` (mean over the input lengths of Tables 1 and 4, English
        edition; one training each, so no interval).
    """
    tables = load_tables()
    rows = tables[(tables["source"] == "en") & tables["table"].isin(TABLES)
                  & tables["row"].isin(["Before", "RetMask"])]
    wide = rows.pivot_table(index=["group", "column"], columns="row", values="value", sort=False)
    gains = (wide["RetMask"] - wide["Before"]).groupby("group", sort=False).mean()
    summary = load_published_summary()
    spread = summary[summary["statistic"] == statistic].set_index("model")
    spread = spread.rename(columns={"value": "sparsity", "low": "sparsity_low",
                                    "high": "sparsity_high"})
    return gains.rename("gain").rename_axis("model").reset_index().join(
        spread[["sparsity", "sparsity_low", "sparsity_high"]], on="model")
