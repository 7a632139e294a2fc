"""Share-Attention in later layers only: heads that are alike, against random ones."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import pandas as pd
from pydantic import Field

from rmutils.attention import sharing_plans
from rmutils.attention.share_attention import GivenSharing, Share
from rmutils.attention.variants import PLAIN, AttentionVariant, Plain
from rmutils.book.experiments.under_variants import TextsConfig, VariantConfig, measure
from rmutils.core.config import Config
from rmutils.core.experiment import Plan
from rmutils.core.results import Tables
from rmutils.heads.detection import DetectConfig
from rmutils.models import LanguageModel
from rmutils.stats import DIFFERENCE, LEVEL, TIE, contrast, holm

ALIKE, RANDOM, EVERYWHERE = "alike", "random", "one threshold"  # arms besides the plain model
FLOOR, CEILING = 0.1, 0.9
"""Two arms that both find less, or both more, say nothing about each other."""


class LaterConfig(Config):
    """Which layers share, how many heads are left, and what is asked."""

    kept: Annotated[float, Field(gt=0, le=1)] = 0.691
    """Most heads that still compute weights, as a share of all heads of the model."""
    layers: tuple[Annotated[int, Field(ge=0)], ...] = (2, 3)
    """In which heads share."""
    draws: tuple[int, ...] = (42, 43, 44, 45, 46)
    """Seeds of the random heads."""
    prompts: Annotated[int, Field(ge=1)] = Share().prompts
    """Whose attention maps say which heads are alike."""
    tokens: Annotated[int, Field(ge=1)] = Share().tokens
    """Most tokens of each."""
    needles: DetectConfig = DetectConfig()
    """Needles in a haystack."""
    texts: TextsConfig = TextsConfig()
    """Plain text."""


def planned(plan: Plan) -> Iterator[tuple[str, LaterConfig]]:
    """Yield model and configuration of each measurement of the plan, in its order."""
    p = plan.content
    for model in p["models"]:
        first, last = p["layers"][model]
        prompts, tokens = p["calibration"][model]
        asked = p["needles"][model]
        needles = DetectConfig(lengths=(256,), depths=tuple(asked["depths"]), needles=20,
                               needle_set=asked["set"], max_new_tokens=24)
        for kept in p["kept"][model]:
            yield model, LaterConfig(
                kept=kept, layers=tuple(range(first, last + 1)), draws=tuple(p["draws"]),
                prompts=prompts, tokens=tokens, needles=needles, texts=TextsConfig(**p["texts"]))


def later_sharing(lm: LanguageModel, config: LaterConfig, journal: Path | None = None) -> Tables:
    """Measure the plain model and each arm."""
    apart = sharing_plans.mean_distances(lm.model, sharing_plans.calibration_prompts(lm,
                                                                                     config.prompts,
                                                                                     config.tokens))
    limits = {arm: sharing_plans.in_layers(sharing_plans.threshold_for(apart, config.kept, layers),
                                           layers, len(apart))
              for arm, layers in ((ALIKE, config.layers), (EVERYWHERE, None))}
    found = {arm: sharing_plans.sharing_at(apart, limit) for arm, limit in limits.items()}
    arms: list[tuple[str, int, AttentionVariant]] = [
        (PLAIN, 0, Plain()),
        *((arm, 0, GivenSharing(sharing=sharing)) for arm, sharing in found.items()),
        *((RANDOM, draw, GivenSharing(sharing=sharing_plans.shuffled(found[ALIKE], draw)))
          for draw in config.draws)]
    parts: dict[str, list[pd.DataFrame]] = {}
    for arm, draw, variant in arms:
        asked = VariantConfig(variant=variant, needles=config.needles, documents=None,
                              texts=config.texts)
        own = journal.with_name(f"{journal.name}.{arm}-{draw}") if journal else None
        for name, table in measure(lm, asked, journal=own).items():
            parts.setdefault(name, []).append(table.assign(arm=arm, draw=draw))
    return {name: pd.concat(tables, ignore_index=True) for name, tables in parts.items()} | {
        "arms": pd.DataFrame([(arm, max(limits[arm]), sharing_plans.retention(sharing))
                              for arm, sharing in found.items()],
                             columns=["arm", "threshold", "retention"])}


def compare_arms(needles: pd.DataFrame, arm: str = ALIKE, base: str = RANDOM) -> pd.DataFrame:
    """Compare two arms by the share of needles found, mean over draws."""
    rows = []
    for (model, rate), part in needles.groupby(["model", "rate"], sort=False):
        ours, theirs = (part[part["arm"] == one].pivot(
            index=["question", "place"], columns="draw", values="correct") for one in (arm, base))
        difference = -theirs.sub(ours.mean(axis=1), axis=0)
        values = difference.to_numpy(float)
        clusters = difference.index.get_level_values("question").to_numpy()
        means = ours.to_numpy().mean(), theirs.to_numpy().mean()
        more = contrast(values, clusters, bounds=DIFFERENCE)
        rows.append((model, rate, *means, *more.columns.values(), more.clusters, more.seeds,
                     int((theirs.mean() > means[0] + TIE).sum()),
                     max(means) >= FLOOR and min(means) <= CEILING))
    return pd.DataFrame(rows, columns=["model", "rate", "share", "share_base", "effect", "low",
                                       "high", "p", "needles", "draws", "draws_above", "readable"])


def primary(needles: pd.DataFrame, plan: Plan) -> pd.DataFrame:
    """`compare_arms` at the plan's first two rates, with `p_holm` over models and rates."""
    kept = plan.content["kept"]
    found = compare_arms(needles)
    found = found[[row.rate in kept[row.model][:2] for row in found.itertuples()]]
    planned = sum(len(rates[:2]) for rates in kept.values())
    return found.assign(p_holm=holm(found["p"], planned))


def shown_by(found: pd.DataFrame) -> pd.Series:
    """Apply the plan's rule to `primary`: 1 shown, -1 against, 0 undecided, for each model."""
    clear = found["readable"] & (found["p_holm"] < 1 - LEVEL)
    sign = (clear & (found["low"] > 0)).astype(int) - (clear & (found["high"] < 0)).astype(int)
    return sign.groupby(found["model"], sort=False).sum().clip(-1, 1)
