"""Where Ms-PoE can help: beyond the trained length, and two causes of a loss in the middle.

The plan is `data/plans/ms_poe.yml`. The models of the two causes stay in the user's cache: their
weights follow from the recipe, and `rmutils run 11_ms_poe -p compute_planned auto` makes them
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
from rmutils.experiments.half_learned import snapshot_folder
from rmutils.experiments.under_variants import TextsConfig, VariantConfig, measure
from rmutils.heads import DetectConfig
from rmutils.heads.scores import Head
from rmutils.longcontext.extension import Extended
from rmutils.models import LanguageModel, identify, load_model
from rmutils.models.engine.implementations import using
from rmutils.models.language_model import passages
from rmutils.models.teaching import RECIPES, train_further
from rmutils.pipeline.planned_runs import Plan

CAUSES = ("A", "B")
"""Answers in the outer fifths of the training texts; answers anywhere."""
LOOKS_BACK = 0.4
"""Mean attention to the token before, from which on a head is spared."""
POSITIONS = Stage[Tables]("positions", version=1, read=read_tables)


class PositionsConfig(Config):
    """A model, asked for needles at some lengths under several variants."""

    model: str
    """A teaching model."""
    cause: str = ""
    """`A` or `B`: a snapshot of the model's training is trained further for it."""
    snapshot: int = 0
    """Its step."""
    further: int = 0
    """Steps of the further training."""
    outer: float | None = None
    """Share of its answers that stand in the outer fifths of their text; None: they stand
    anywhere."""
    trained: int
    """Longest text that the model was trained with, in tokens."""
    yarn: float
    """Factor of YaRN."""
    variants: tuple[str, ...]
    """Names, as in `variant`."""
    needles: DetectConfig
    texts: TextsConfig = TextsConfig()


def variant(name: str, lm: LanguageModel, trained: int, yarn: float) -> Variant:
    """Return a variant of the plan by its name, for a model whose heads may be spared.

    `trained` and `yarn` are as in `PositionsConfig`.
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
    texts = TextsConfig(count=strained["texts"])
    return [PositionsConfig(
        model=model, variants=(PLAIN, *strained["variants"]), texts=texts,
        trained=strained["trained"], yarn=strained["yarn"],
        needles=DetectConfig(lengths=(strained["length"],), **grid))
        for model in strained["models"]] + [PositionsConfig(
            model=model, cause=cause, snapshot=causes["snapshots"][model], outer=causes[cause],
            further=causes["further"], trained=causes["trained"], yarn=causes["yarn"],
            variants=(PLAIN, *causes["variants"]), texts=texts,
            needles=DetectConfig(lengths=tuple(causes["lengths"].values()), **grid))
        for model in causes["models"] for cause in CAUSES]


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
        lm = load_model(str(_trained(config)) if config.cause else config.model)
        for name in config.variants:
            if name not in kept:
                how = variant(name, lm, config.trained, config.yarn)
                kept[name] = {table: rows.assign(variant=name).to_dict("records") for table, rows in
                              measure(lm, VariantConfig(
                                  variant=how, needles=config.needles, documents=None,
                                  texts=config.texts)).items()}
        write_tables({table: pd.concat([pd.DataFrame(kept[name][table]) for name in
                                        config.variants]).drop(columns=["response", "kept"],
                                                               errors="ignore")
                      for table in ("needles", "texts")}, folder)
        return {"plan": plan.digest, "spared": previous_token_heads(lm)}

    inputs = ({"recipe": RECIPES[config.model].digest()} if config.cause
              else {"model": identify(config.model)})
    artifact = POSITIONS.obtain_folder(
        config, inputs, make, compute=compute, model=config.model,
        label=f"cause-{config.cause.lower()}" if config.cause else "strained",
        command=command_line("run", "11_ms_poe", "-p", "compute_planned", "auto"))
    return read_tables(artifact.folder), artifact


def _trained(config: PositionsConfig) -> Path:
    """Folder of a model that is trained for a cause, which is trained if it is not there."""
    folder = cache_dir() / "models" / (
        f"cause-{config.cause.lower()}-{config.model}-{config.snapshot}-{config.further}")
    if not (folder / "config.json").exists():
        snapshot = snapshot_folder(config.model, config.snapshot)
        lm = load_model(str(snapshot))
        lm.model.load_state_dict(train_further(
            RECIPES[config.model], snapshot, config.further, seed=0, changes={
                "curriculum": ((1.0, config.trained),), "kinds": ("needle",), "tasks": 0.75,
                "plain": 0.0, "head_dropout": 0.0, "layer_dropout": 0.0,
                "outer": config.outer}).state_dict())
        lm.tokenizer.save_pretrained(folder)
        lm.model.save_pretrained(folder)
    return folder


def positions(
    plan: Plan, *, compute: Compute = "never"
) -> tuple[Mapping[str, pd.DataFrame], list[Artifact], list[str]]:
    """Collect what is stored, and make what is missing unless `compute="never"`.

    Returns
    -------
    dict of str to DataFrame, list of Artifact, list of str
        `needles` and `texts` with `model` and `cause` (empty: the model as it is stored); and what
        is planned and missing.
    """
    parts: dict[str, list[pd.DataFrame]] = {"needles": [], "texts": []}
    artifacts, missing = [], []
    for config in planned(plan):
        try:
            tables, artifact = positions_stored(config, plan, compute=compute)
        except NotStored:
            missing.append(f"{config.cause} of {config.model}" if config.cause else config.model)
            continue
        artifacts.append(artifact)
        for table, rows in tables.items():
            parts[table].append(rows.assign(model=config.model, cause=config.cause))
    return ({table: pd.concat(rows, ignore_index=True) for table, rows in parts.items() if rows},
            artifacts, missing)
