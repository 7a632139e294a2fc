"""Does sparsity predict the gain? One point for each designed model (section 5.2)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy.stats import pearsonr, rankdata, spearmanr

from rmutils.comparisons import compare
from rmutils.evaluation.designs import Design
from rmutils.evaluation.longcontext.averages import samples_of
from rmutils.heads import sparsity
from rmutils.stats import RESAMPLES, percentiles
from rmutils.training.planned import BEFORE


def points(found: Mapping[str, Design], statistic: str = "gini") -> pd.DataFrame:
    """Sparsity before RetMask and the gain by it, model by model.

    Parameters
    ----------
    found : mapping
        Name -> what was found.
    statistic : str
        One of `rmutils.heads.sparsity.statistics`.

    Returns
    -------
    DataFrame
        `model`, `found` (share of needles found before), `sparsity`, `gain` (points of 0 to 100,
        plain mean of seven categories, over lengths and trainings), both with `_low` and `_high`
        (95 %; of the sparsity over needles, of the gain over texts and trainings).
    """
    rows = []
    for name, design in found.items():
        spread = sparsity.summarize(design.scores).set_index("statistic").loc[statistic]
        samples = pd.concat([
            samples_of(part).assign(strategy=strategy, seed=seed)
            for (strategy, seed), part in design.samples.groupby(["strategy", "seed"], sort=False)])
        gain = compare(samples, BEFORE).iloc[0]
        rows.append({
            "model": name, "found": design.scores.cases["success"].mean(),
            "sparsity": spread["value"], "sparsity_low": spread["low"],
            "sparsity_high": spread["high"], "gain": gain["effect"], "gain_low": gain["low"],
            "gain_high": gain["high"]})
    return pd.DataFrame(rows)


def correlations(
    table: pd.DataFrame, *, resamples: int = RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """How gain and sparsity go together over models.

    That each point is uncertain itself makes a correlation weaker than that of the true values.

    Parameters
    ----------
    table : DataFrame
        As from `points`.

    Returns
    -------
    DataFrame
        `statistic` (Pearson's r, with Fisher's interval, and Spearman's rank correlation, with a
        bootstrap interval over models), `value`, `low`, `high`, `p`, `models`.
    """
    x, y = table["sparsity"].to_numpy(), table["gain"].to_numpy()
    line, ranks = pearsonr(x, y), spearmanr(x, y)
    draws = np.random.default_rng(seed).integers(0, len(x), (resamples, len(x)))
    drawn = _alike(rankdata(x[draws], axis=1), rankdata(y[draws], axis=1))
    return pd.DataFrame([
        ("Pearson's r", line.statistic, *line.confidence_interval(), line.pvalue, len(x)),
        ("Spearman's rank correlation", ranks.statistic, *percentiles(drawn[~np.isnan(drawn)]),
         ranks.pvalue, len(x))], columns=["statistic", "value", "low", "high", "p", "models"])


@np.errstate(invalid="ignore")
def _alike(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Pearson's correlation of each row of `x` with that of `y`; NaN where one does not vary."""
    x, y = (values - values.mean(1, keepdims=True) for values in (x, y))
    return (x * y).sum(1) / np.sqrt((x**2).sum(1) * (y**2).sum(1))
