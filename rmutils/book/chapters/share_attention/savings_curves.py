"""Savings of cheaper attention, and what it keeps: stored measurements, and their lines."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from rmutils.attention.select_attention import Select
from rmutils.attention.sharing_plans import in_layers, sharing_at, threshold_for
from rmutils.attention.variants import PLAIN
from rmutils.book.chapters.share_attention import layer_choice
from rmutils.book.chapters.share_attention.later_sharing import (
    ALIKE,
    LaterConfig,
    later_sharing,
    planned,
)
from rmutils.book.chapters.share_attention.layer_choice import layers
from rmutils.book.experiments.run_costs import CostsConfig, costs
from rmutils.book.experiments.under_variants import VariantConfig, changes, compare_stored, levels
from rmutils.core.config import Config, command_line
from rmutils.core.errors import NotStored
from rmutils.core.experiment import Plan, load_plan
from rmutils.core.results import Artifact, Compute, Stage, Tables
from rmutils.heads.detection import DetectConfig, inputs_of
from rmutils.models import LanguageModel
from rmutils.models.loading import ModelRef
from rmutils.stats import POSITIVE, RESAMPLES, Interval, interval, interval_of, spread


@dataclass(frozen=True)
class Measurement:
    """A measurement, with where it is kept and how it is configured."""

    stage: Stage
    config: type[Config]
    make: Callable[[LanguageModel, Config, Path | None], Tables]
    label: Callable[[Config], str] = lambda config: ""  # for the name of a result's folder


MEASUREMENTS = {one.stage.name: one for one in (
    Measurement(Stage("agreement", 1), layer_choice.AgreementConfig, layer_choice.agreement),
    Measurement(Stage("costs", 1), CostsConfig, costs, lambda config: "-".join(
        dict.fromkeys(variant.kind for variant in config.variants.values()))),
    Measurement(Stage("layers", 1), layer_choice.LayersConfig, layers,
                lambda config: config.variant.kind),
    Measurement(Stage("later-sharing", 1), LaterConfig, later_sharing,
                lambda config: f"kept{config.kept:g}"),
    Measurement(Stage("likeness", 1), layer_choice.LikenessConfig, layer_choice.likeness),
    Measurement(Stage("recall", 1), layer_choice.RecallConfig, layer_choice.recall),
)}
"""By the name of the stage."""


def saved(model: LanguageModel | str, config: Config, *,
          compute: Compute = "auto") -> tuple[Tables, Artifact]:
    """Take a measurement, or read it if it is stored; a stopped one goes on."""
    one, ref = _measurement(config), ModelRef(model)
    asked = getattr(config, "needles", None) or DetectConfig()
    return one.stage.obtain(
        config, inputs_of(ref.identity, asked, ref.corpus),
        lambda journal: one.make(ref.load(), config, journal), compute=compute,
        command=measurement_command(ref.name, config), model=ref.name, label=one.label(config))


def look_up(model: LanguageModel | str, config: Config, *,
            compute: Compute = "auto") -> tuple[Tables, tuple[Artifact, ...], tuple[str, ...]]:
    """`saved`, where what is not stored is no error."""
    try:
        tables, artifact = saved(model, config, compute=compute)
    except NotStored:
        return {}, (), (measurement_command(ModelRef(model).name, config),)
    return tables, (artifact,), ()


def planned_sharing(
    plan: Plan, *, compute: Compute = "never"
) -> tuple[Tables, tuple[Artifact, ...], tuple[str, ...]]:
    """Collect the measurements of a plan of `later_sharing`."""
    parts: dict[str, list[pd.DataFrame]] = {}
    artifacts: tuple[Artifact, ...] = ()
    missing: tuple[str, ...] = ()
    for model, config in planned(plan):
        tables, by, lacks = look_up(model, config, compute=compute)
        artifacts, missing = artifacts + by, missing + lacks
        for name, table in tables.items():
            parts.setdefault(name, []).append(table.assign(model=model, rate=config.kept))
    return ({name: pd.concat(frames, ignore_index=True) for name, frames in parts.items()},
            artifacts, missing)


def measurement_command(name: str, config: Config) -> str:
    """Return the command line that makes this result."""
    return command_line("variants", _measurement(config).stage.name, name, config=config)


def _measurement(config: Config) -> Measurement:
    return next(one for one in MEASUREMENTS.values() if type(config) is one.config)


def medians(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Median of a cost over rounds, for each variant."""
    return pd.DataFrame([(name, *_median(part[column].to_numpy(float)), len(part))
                         for name, part in table.groupby("variant", sort=False)],
                        columns=["variant", "value", "low", "high", "samples"])


def ratios(table: pd.DataFrame, column: str, base: str = PLAIN) -> pd.DataFrame:
    """The same for each round's cost over that of another variant in the same round."""
    costs = table.pivot(index="question", columns="variant", values=column)[
        list(table["variant"].unique())]
    shares = costs.div(costs[base], axis=0).melt(
        var_name="variant", value_name=column, ignore_index=False)
    return medians(shares.reset_index(), column)


def _median(values: np.ndarray) -> tuple[float, float, float]:
    drawn = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    medians = np.array([np.median(values), *np.median(values[drawn], axis=1)])
    return interval_of(spread(medians, len(values)), bounds=POSITIVE)


def along(frame: pd.DataFrame, lines: Mapping[str, tuple[str, float]]) -> pd.DataFrame:
    """Variants as points of lines, for `rmutils.book.figures.variant_figures.panels`; no others."""
    part = frame[frame["variant"].isin(lines)]
    line, x = zip(*(lines[name] for name in part["variant"]), strict=True)
    return part.assign(line=line, x=x)


def by_half(table: pd.DataFrame, layers: int) -> pd.DataFrame:
    """The setting in one layer, on average over each half of the layers, less the plain model."""
    halves = {str(i): "first half" if i < layers / 2 else "second half" for i in range(layers)}
    means = table.assign(variant=table["variant"].replace(halves)).groupby(
        ["variant", "length", "question", "place"], as_index=False, sort=False)["correct"].mean()
    return changes(means, "correct")


def tokens_kept(tables: Tables) -> pd.DataFrame:
    """Mean share of tokens (or heads) that is kept while answering, by variant."""
    parts = [tables[name].assign(question=name + tables[name]["question"].astype(str))
             for name in ("documents", "needles")]
    return levels(pd.concat(parts).dropna(subset=["kept"]), "kept").set_index("variant")


def memory(costs: pd.DataFrame, base: str = PLAIN) -> pd.DataFrame:
    """Mean bytes that are kept behind an answer, by variant."""
    mean = costs.groupby("variant", sort=False)[["cache_bytes", "hidden_bytes"]].mean()
    both, whole = mean.sum(axis=1), mean.loc[base].sum()
    return mean.assign(cache=mean["cache_bytes"] / whole, both=both / whole)


def same_as(tables: Tables, other: str, base: str = PLAIN) -> tuple[int, int]:
    """How many answers and texts are exactly those of another variant, and how many there are."""
    equal, total = 0, 0
    for name, table in tables.items():
        value = "nats" if name == "texts" else "response"
        ours, theirs = (table.loc[table["variant"] == one, value].tolist() for one in (other, base))
        equal += sum(a == b for a, b in zip(ours, theirs, strict=True))
        total += len(ours)
    return equal, total


SHARE, SELECT, BOTH = "share", "select", "both"  # arms besides the plain model
WANTED = 0.8  # section 5: with both, four fifths of the scores remain


def share_and_select(plan: Plan, *,
                     compute: Compute = "never") -> tuple[pd.DataFrame, list[Artifact], list[str]]:
    """Collect the arms of Figure 8 of Taniguchi and others, on needles."""
    p = plan.content
    model, later = next((model, config) for model, config in planned(load_plan("later_sharing"))
                        if model == p["model"] and config.kept == p["sharing"])
    alone, by, missing = look_up(model, later, compute="never")
    alike, alike_by, lacks = look_up(model, layer_choice.LikenessConfig(
        prompts=later.prompts, tokens=later.tokens, layer=12), compute="never")
    if not alike:
        return pd.DataFrame(), [], [*missing, *lacks]
    apart = layer_choice.square(alike["distances"], "distance")
    limits = in_layers(threshold_for(apart, later.kept, later.layers), later.layers, len(apart))
    select = Select(**p["select"])
    ours = compare_stored(model, {SELECT: select, BOTH: select.model_copy(
        update={"sharing": sharing_at(apart, limits)})}, VariantConfig(
            needles=later.needles, documents=None, texts=None), compute=compute)
    missing = (*missing, *ours.missing)
    if missing:
        return pd.DataFrame(), [], [*missing]
    names = {PLAIN: PLAIN, ALIKE: SHARE}
    needles = alone["needles"].query("arm in @names")
    return (pd.concat([needles.assign(variant=needles["arm"].map(names)), ours.tables["needles"]],
                      ignore_index=True)[
                          ["variant", "length", "question", "place", "correct", "kept"]],
            [*by, *alike_by, *ours.artifacts], [])


def remaining(needles: pd.DataFrame) -> Interval:
    """Needles found with both, less the wanted share of the plain model's: the primary outcome."""
    found = needles.pivot(index=["question", "place"], columns="variant",
                          values="correct").astype(float)
    return interval(found[BOTH] - WANTED * found[PLAIN],
                    found.index.get_level_values("question"), bounds=(-WANTED, 1.0))
