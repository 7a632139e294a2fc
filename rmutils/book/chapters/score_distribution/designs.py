"""Models whose retrieval is spread by design, small enough to train many of them (section 5.2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pandas as pd

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
from rmutils.stats import compare, pearson, spearman

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
    """Results on a model."""

    scores: HeadScores  # before RetMask
    # `strategy` (`before` or `retmask`), `seed`, and the columns of
    # `rmutils.evaluation.helmet.evaluate` but the responses.
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
    """Train a model, detect, run RetMask with each seed, and evaluate; or read that."""
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
    """Sparsity before RetMask and the gain by it, model by model."""
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


def correlations(table: pd.DataFrame) -> pd.DataFrame:
    """Correlate gain and sparsity over models."""
    x, y = table["sparsity"].to_numpy(), table["gain"].to_numpy()
    found = {"Pearson's r": pearson(x, y), "Spearman's rank correlation": spearman(x, y)}
    return pd.DataFrame([(name, *one, len(x)) for name, one in found.items()],
                        columns=["statistic", "value", "low", "high", "p", "models"])
