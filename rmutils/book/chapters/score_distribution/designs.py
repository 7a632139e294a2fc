"""Models whose retrieval is spread by design, small enough to train many of them (section 5.2).

The paper holds that the gain by RetMask follows how sparse the retrieval scores are, and has four
models to show it. Four points lie on a line by chance too often. Here are twelve models that differ
in two things only, how many heads they have and how many of these fail at random while they are
trained: a model that can rely on no single head spreads what it does over many.

Does sparsity predict the gain? One point for each designed model (section 5.2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import chi2, norm, pearsonr, rankdata, spearmanr

from rmutils.book.experiments.planned_runs import BEFORE
from rmutils.core.config import Config, command_line
from rmutils.core.paths import cache_dir
from rmutils.core.results import Artifact, Compute, Stage
from rmutils.evaluation.helmet import EvaluateConfig, evaluate_stored
from rmutils.evaluation.helmet.averages import samples_of
from rmutils.heads import HeadScores, sparsity
from rmutils.heads.detection import detect_stored, even_depths, load, save
from rmutils.models.teaching import TeachingRecipe, train
from rmutils.pipeline.retmask import RetMaskConfig, run_retmask
from rmutils.stats import (
    DIFFERENCE,
    LEVEL,
    RESAMPLES,
    TIE,
    Interval,
    compare,
    interval_of,
    spread,
)

DESIGN = Stage("design", version=1)
HEADS, DROPOUTS = (4, 8, 12, 16), (0.0, 0.1, 0.3)


class DesignConfig(Config):
    """A model, and what is done with it. All values were fixed before any model was trained."""

    recipe: TeachingRecipe
    retmask: RetMaskConfig = RetMaskConfig().changed({
        "instructions": 256, "tau": 0.1, "detect.lengths": (256, 512),
        "detect.depths": even_depths(5)})
    """Half the instructions of the other runs on teaching models. Section 4.1: tau is 0.1 for
    Llama-3.1."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of the trainings by RetMask."""
    evaluation: EvaluateConfig = EvaluateConfig(lengths=(256, 512), samples=20)


@dataclass(frozen=True)
class Design:
    """Results on a model.

    `scores`: Before RetMask.
    `samples`: `strategy` (`before` or `retmask`), `seed`, and the columns of
    `rmutils.evaluation.helmet.evaluate` but the responses.
    """

    scores: HeadScores
    samples: pd.DataFrame
    artifact: Artifact


def designs() -> dict[str, DesignConfig]:
    """All models by name."""
    return {f"{heads} heads, dropout {dropout:g}": DesignConfig(recipe=TeachingRecipe(
        # Olmo 3 with full attention: QK-norm, which learns faster, and no thoughts.
        family="olmo3", sliding_window=None, num_hidden_layers=3, num_attention_heads=heads,
        num_key_value_heads=heads // 2, head_dropout=dropout, steps=2400,
        curriculum=((0.15, 64), (0.4, 128), (0.6, 256), (1.0, 512))))
        for heads, dropout in product(HEADS, DROPOUTS)}


def design_stored(config: DesignConfig, *, compute: Compute = "auto") -> Design:
    """Train a model, detect, run RetMask with each seed, evaluate before and after; or read that.

    Each step is stored by itself, so that a run that was stopped goes on. Weights stay in the
    user's cache.
    """
    artifact = DESIGN.obtain_folder(
        config, {}, lambda folder: _make(config, folder), compute=compute, model="designed",
        label=f"{config.recipe.num_attention_heads}-heads-dropout-{config.recipe.head_dropout:g}",
        command=command_line("run", "05_score_distribution", "-p", "compute_designs", "auto"))
    scores = load(artifact.folder, "designed")
    return Design(scores, pd.read_parquet(artifact.path("samples.parquet")), artifact)


def _make(config: DesignConfig, folder: Path) -> dict:
    home = cache_dir() / "models" / f"design-{config.recipe.digest()[:16]}"
    name = str(train(config.recipe, home))
    scores, detected = detect_stored(name, config.retmask.detect)
    save(scores, folder)
    trained = {(BEFORE, 0): name}
    for seed in config.seeds:
        run = run_retmask(name, config.retmask.changed({"seed": seed}))
        trained["retmask", seed] = run.training
    parts, used = [], [detected.key]
    for (strategy, seed), who in trained.items():
        table, artifact = evaluate_stored(who, config.evaluation)
        parts.append(table.drop(columns="response").assign(strategy=strategy, seed=seed))
        used.append(artifact.key)
    pd.concat(parts, ignore_index=True).to_parquet(
        folder / "samples.parquet", index=False, compression="zstd")
    return {"artifacts": used, "heads": len(scores.select(tau=config.retmask.tau))}


def points(found: Mapping[str, Design], statistic: str = "gini") -> pd.DataFrame:
    """Sparsity before RetMask and the gain by it, model by model.

    Columns: `model`, `heads` (of all layers), `found` (share of needles found before), `sparsity`,
    `gain` (points of 0 to 100, plain mean of seven categories, over lengths and trainings), both
    with `_low` and `_high` (95 %; of the sparsity over needles, of the gain over texts and
    trainings).
    """
    rows = []
    for name, design in found.items():
        spread = sparsity.summarize(design.scores).set_index("statistic").loc[statistic]
        samples = pd.concat([
            samples_of(part).assign(strategy=strategy, seed=seed)
            for (strategy, seed), part in design.samples.groupby(["strategy", "seed"], sort=False)])
        gain = compare(samples, BEFORE).iloc[0]
        rows.append({
            "model": name, "heads": design.scores.mean.size,
            "found": design.scores.cases["success"].mean(),
            "sparsity": spread["value"], "sparsity_low": spread["low"],
            "sparsity_high": spread["high"], "gain": gain["effect"], "gain_low": gain["low"],
            "gain_high": gain["high"]})
    return pd.DataFrame(rows)


def correlations(
    table: pd.DataFrame, *, resamples: int = RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """Correlation of gain and sparsity over models.

    That each point is uncertain itself makes a correlation weaker than that of the true values.

    Columns: `statistic` (Pearson's r, with Fisher's interval, and Spearman's rank correlation, with
    a bootstrap interval over models), `value`, `low`, `high`, `p`, `models`.
    """
    x, y = table["sparsity"].to_numpy(), table["gain"].to_numpy()
    line, ranks = pearsonr(x, y), spearmanr(x, y)
    draws = np.random.default_rng(seed).integers(0, len(x), (resamples, len(x)))
    drawn = _alike(rankdata(x[draws], axis=1), rankdata(y[draws], axis=1))
    spearman = interval_of(spread(np.array([ranks.statistic, *drawn]), len(x)),
                           bounds=DIFFERENCE)
    return pd.DataFrame([
        ("Pearson's r", line.statistic, *line.confidence_interval(), line.pvalue, len(x)),
        ("Spearman's rank correlation", *spearman, ranks.pvalue, len(x))],
        columns=["statistic", "value", "low", "high", "p", "models"])


@np.errstate(invalid="ignore")
def _alike(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Pearson's correlation of each row of `x` with that of `y`; NaN where one does not vary."""
    x, y = (values - values.mean(1, keepdims=True) for values in (x, y))
    return (x * y).sum(1) / np.sqrt((x**2).sum(1) * (y**2).sum(1))


def standard_error(low: npt.ArrayLike, high: npt.ArrayLike) -> Any:
    """Half of a 95 % interval in units of 1.96."""
    return (np.asarray(high) - np.asarray(low)) / 2 / norm.ppf((1 + LEVEL) / 2)


class Heterogeneity(NamedTuple):
    """Cochran's Q of gains, its degrees of freedom, and p if all true gains are equal."""

    q: float
    freedom: int
    p: float


def heterogeneity(values: npt.ArrayLike, errors: npt.ArrayLike) -> Heterogeneity:
    """Test whether estimates differ by more than their standard errors explain."""
    found, weights = np.asarray(values, dtype=float), np.asarray(errors, dtype=float) ** -2.0
    q = float(weights @ (found - np.average(found, weights=weights)) ** 2)
    return Heterogeneity(q, len(found) - 1, float(chi2.sf(q, len(found) - 1)))


def tau_squared(values: npt.ArrayLike, errors: npt.ArrayLike) -> float:
    """Variance of the true values behind estimates, from Cochran's Q.

    References
    ----------
    DerSimonian and Laird (1986), "Meta-analysis in clinical trials", Controlled Clinical Trials 7.
    """
    weights = np.asarray(errors, dtype=float) ** -2.0
    q, freedom, _ = heterogeneity(values, errors)
    return float(max(q - freedom, 0) / (weights.sum() - (weights**2).sum() / weights.sum()))


def correlation(
    x: npt.ArrayLike, y: npt.ArrayLike, errors: npt.ArrayLike, *, resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Pearson's r, with an interval for few points whose `y` are uncertain themselves.

    On Fisher's scale the variance is 1 / (n - 3) for the choice of points, plus that of a
    simulation that adds normal errors to every `y`. Ends are NaN for fewer than four points.
    """
    first, second = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    r = float(np.corrcoef(first, second)[0, 1])
    if len(first) < 4:
        return Interval(r, math.nan, math.nan)
    noise = np.random.default_rng(seed).normal(size=(resamples, len(first)))
    moved = second + noise * np.asarray(errors, dtype=float)
    moved -= moved.mean(1, keepdims=True)
    drawn = moved @ (first - first.mean()) / (
        np.linalg.norm(moved, axis=1) * np.linalg.norm(first - first.mean()))
    almost = 1 - TIE
    scale = math.atanh(min(max(r, -almost), almost))
    spread_of = np.var(np.arctanh(np.clip(drawn, -almost, almost))) + 1 / (len(first) - 3)
    half = norm.ppf((1 + LEVEL) / 2) * math.sqrt(spread_of)
    return Interval(r, math.tanh(scale - half), math.tanh(scale + half))
