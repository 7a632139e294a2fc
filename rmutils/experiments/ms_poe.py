"""Where Ms-PoE can help: beyond the trained length, and two causes of a loss in the middle.

The plan is `data/plans/ms_poe.yml`. Models that are trained for it stay in the user's cache: their
weights are a function of the recipe, and `rmutils run 11_ms_poe -p compute_planned auto` makes them
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import torch

from rmutils.attention.ms_poe import MsPoe
from rmutils.attention.variants import PLAIN, Plain, Variant
from rmutils.core.config import Config, command_line
from rmutils.core.errors import NotStored
from rmutils.core.journal import Journal
from rmutils.core.paths import cache_dir
from rmutils.core.results import Artifact, Compute, Stage, Tables, read_tables, write_tables
from rmutils.experiments.under_variants import TextsConfig, VariantConfig, measure
from rmutils.heads import DetectConfig
from rmutils.heads.scores import Head
from rmutils.longcontext.extension import Extended
from rmutils.models import LanguageModel, identify, load_model
from rmutils.models.engine.implementations import using
from rmutils.models.language_model import passages
from rmutils.models.teaching import RECIPES, TeachingRecipe, train
from rmutils.pipeline.planned_runs import Plan

CAUSES = ("A", "B")
"""Answers in the outer fifths of the training texts; answers everywhere, in short texts."""
TRAINED = 640
"""Longest rows of the stored teaching models, in tokens."""
LOOKS_BACK = 0.4
"""Mean attention to the token before, from which on a head is spared."""
POSITIONS = Stage[Tables]("positions", version=1, read=read_tables)


class PositionsConfig(Config):
    """A model, asked for needles at some lengths under several variants."""

    cause: str = ""
    """`A` or `B`: a model that is trained for it."""
    model: str = ""
    """Else a model's name."""
    seed: int = 0
    """Of the training."""
    variants: tuple[str, ...]
    """Names, as in `variant`."""
    needles: DetectConfig
    texts: TextsConfig = TextsConfig()


def recipe_of(cause: str, seed: int) -> TeachingRecipe:
    """Recipe of a model that is trained for a cause."""
    rows = ((0.2, 64), (0.55, 128), (0.8, 320), (1.0, 640 if cause == "A" else 320))
    return RECIPES["tiny-qwen3"].changed({
        "seed": seed, "steps": 1500, "num_hidden_layers": 3, "num_attention_heads": 8,
        "num_key_value_heads": 4, "curriculum": rows, "repeats": 0.3, "tasks": 0.7, "plain": 0.0,
        "head_dropout": 0.0, "layer_dropout": 0.0, "kinds": ("needle",),
        "outer": 0.9 if cause == "A" else None})


def variant(name: str, lm: LanguageModel, trained: int, yarn: float) -> Variant:
    """Return a variant of the plan by its name.

    Parameters
    ----------
    lm : LanguageModel
        Whose heads are spared, where the variant spares some.
    trained : int
        Its trained length in tokens, for YaRN.
    yarn : float
        The factor of YaRN.
    """
    if name == PLAIN:
        return Plain()
    if name == "YaRN":
        return Extended(factor=yarn, trained=trained)
    if name.endswith(", by prompt"):
        return MsPoe(order="position_aware")
    ratios, _, how = name.partition(", ")
    if ratios.startswith("all "):
        low = high = float(ratios.removeprefix("all "))
    else:
        low, high = sorted(map(float, ratios.replace(" or ", " to ").split(" to ")))
    return MsPoe(s_min=low, s_max=high, first_layer=0,
                 order="reversed" if ratios.startswith("1.5") else "linear",
                 spacing="two" if " or " in ratios else "log" if how == "log" else "even",
                 spared=tuple(previous_token_heads(lm)) if how == "spared" else ())


def previous_token_heads(lm: LanguageModel, least: float = LOOKS_BACK) -> list[Head]:
    """Heads whose mean attention to the token before, over plain texts, is `least` or more."""
    texts, _ = passages(lm, TextsConfig().count, TextsConfig().tokens)
    with using(lm.model, "eager"), torch.inference_mode():
        weights = lm.model(torch.tensor(texts, device=lm.model.device), output_attentions=True,
                           use_cache=False).attentions
    means = torch.stack([layer.diagonal(-1, dim1=2, dim2=3).mean((0, 2)) for layer in weights])
    return [(int(layer), int(head)) for layer, head in (means >= least).nonzero()]


def planned(plan: Plan) -> list[PositionsConfig]:
    """Return all measurements in the order in which they are made."""
    p = plan.content
    grid = {"needles": p["needles"]["count"], "depths": tuple(p["needles"]["depths"]),
            "max_new_tokens": 24}
    strained, causes = p["strained"], p["causes"]
    return [PositionsConfig(
        model=model, variants=(PLAIN, *strained["variants"]),
        needles=DetectConfig(lengths=(strained["length"],), **grid),
        texts=TextsConfig(count=strained["texts"])) for model in strained["models"]] + [
        PositionsConfig(cause=cause, seed=seed, variants=(PLAIN, *causes["variants"]),
                        needles=DetectConfig(lengths=tuple(causes[cause]["asked"]), **grid))
        for seed in range(causes["seeds"]) for cause in CAUSES]


def positions_stored(
    config: PositionsConfig, plan: Plan, *, compute: Compute = "auto"
) -> tuple[Tables, Artifact]:
    """Measure, or look it up; a stopped run goes on with the next variant.

    Returns
    -------
    dict of str to DataFrame, Artifact
        `needles` and `texts` as from `rmutils.experiments.under_variants.measure`, with `variant`
        and without the answers. The facts name the spared heads.

    Raises
    ------
    NotStored
        Nothing stored and `compute="never"`.
    """
    def make(folder: Path) -> dict:
        kept = Journal(folder / ".done.jsonl")
        lm = load_model(config.model or str(_trained(config)))
        trained = (recipe_of(config.cause, config.seed).curriculum[-1][1] if config.cause
                   else TRAINED)
        for name in config.variants:
            if name not in kept:
                how = variant(name, lm, trained, 4.5 if config.cause == "B" else 2)
                kept[name] = {table: rows.assign(variant=name).to_dict("records") for table, rows in
                              measure(lm, VariantConfig(
                                  variant=how, needles=config.needles, documents=None,
                                  texts=config.texts)).items()}
        write_tables({table: pd.concat([pd.DataFrame(kept[name][table]) for name in
                                        config.variants]).drop(columns=["response", "kept"],
                                                               errors="ignore")
                      for table in ("needles", "texts")}, folder)
        return {"plan": plan.digest, "spared": previous_token_heads(lm)}

    inputs = ({"recipe": recipe_of(config.cause, config.seed).digest()} if config.cause
              else {"model": identify(config.model)})
    artifact = POSITIONS.obtain_folder(
        config, inputs, make, compute=compute,
        model=config.model or f"cause-{config.cause.lower()}", label=f"seed{config.seed}",
        command=command_line("run", "11_ms_poe", "-p", "compute_planned", "auto"))
    return read_tables(artifact.folder), artifact


def _trained(config: PositionsConfig) -> Path:
    """Folder of a model that is trained for a cause, which is trained if it is not there."""
    folder = cache_dir() / "models" / f"cause-{config.cause.lower()}-seed{config.seed}"
    return train(recipe_of(config.cause, config.seed), folder)


def positions(
    plan: Plan, *, compute: Compute = "never"
) -> tuple[Mapping[str, pd.DataFrame], list[Artifact], list[str]]:
    """Collect what is stored, and make what is missing unless `compute="never"`.

    Returns
    -------
    dict of str to DataFrame, list of Artifact, list of str
        `needles` and `texts` with `model` (`cause A`, `cause B` for those that were trained for it)
        and `seed`; and the names of planned measurements that are missing.
    """
    parts: dict[str, list[pd.DataFrame]] = {"needles": [], "texts": []}
    artifacts, missing = [], []
    for config in planned(plan):
        name = config.model or f"cause {config.cause}"
        try:
            tables, artifact = positions_stored(config, plan, compute=compute)
        except NotStored:
            missing.append(f"{name}, seed {config.seed}" if config.cause else name)
            continue
        artifacts.append(artifact)
        for table, rows in tables.items():
            parts[table].append(rows.assign(model=name, seed=config.seed))
    return ({table: pd.concat(rows, ignore_index=True) for table, rows in parts.items() if rows},
            artifacts, missing)
