"""Whether heads that share have to be alike, where they may share, and what time that saves."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pandas as pd

from rmutils.attention.share_attention import Share
from rmutils.book.chapters.share_attention import later_sharing, savings_curves
from rmutils.book.chapters.share_attention.layer_choice import LayersConfig
from rmutils.book.experiments.variant_questions import DocumentsConfig
from rmutils.book.findings import AGAINST, BY_SIGN, SHOWN, UNDECIDED, Measured, Verdict, declare
from rmutils.core.errors import NotStored
from rmutils.core.experiment import load_plan
from rmutils.core.results import Artifact, Tables, stored
from rmutils.heads.detection import DetectConfig
from rmutils.stats import DIFFERENCE, contrast
from rmutils.stats.contrast import Contrast

LIKENESS = "likeness"
GROUPS = {"smollm2-135m": 3, "qwen2.5-coder-0.5b": 7, "qwen2.5-coder-1.5b": 6}
"""Query heads of each key head. `gemma3-270m` has one key head, so all of its heads share it."""


def group_distances(distances: pd.DataFrame, group: int) -> pd.DataFrame:
    """Return the mean distance of two heads, within key groups and otherwise."""
    others = distances[distances["head"] != distances["other"]]
    same = others["head"] // group == others["other"] // group
    return others.assign(where=same.map({True: "within", False: "otherwise"})).pivot_table(
        index="layer", columns="where", values="distance")[["within", "otherwise"]]


def key_groups() -> dict[str, tuple[pd.DataFrame, Contrast]]:
    """Return `group_distances` of each model, and by how much other groups are further apart."""
    found = {}
    for artifact in stored(LIKENESS):
        model = artifact.name.split("/")[1]
        if artifact.shipped and model in GROUPS:
            table = group_distances(
                pd.read_parquet(artifact.path("distances.parquet")), GROUPS[model])
            found[model] = table, contrast(table["otherwise"] - table["within"], bounds=DIFFERENCE)
    return found


LEAD, PLACE, LAYERS = "fig-share-alike", "fig-share-arms", "share-one-layer"
COSTS, MAPS = "fig-share-costs", "fig-share-maps"
LARGE = "smollm2-135m"
LOW = 0.691  # the lower of the paper's two rates
_PLACES = (0.0, 0.5, 1.0)
ONE_LAYER = LayersConfig(
    variant=Share(threshold=0.9), layers=(0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 29),
    needles=DetectConfig(lengths=(512,), depths=_PLACES, needles=3, max_new_tokens=24),
    documents=DocumentsConfig(lengths=(512,), places=_PLACES, questions=4))
"""What the chapter measured on the real model, layer by layer."""
COUNT = 30  # its layers


@cache
def _planned() -> tuple[Tables, tuple[Artifact, ...]]:
    tables, artifacts, missing = savings_curves.planned_sharing(load_plan("later_sharing"))
    if not tables:
        raise NotStored(f"`{missing[0]}` makes it.")
    return tables, artifacts


def _compared(model: str, rate: float, arm: str, base: str) -> Measured:
    tables, names = _planned()
    found = later_sharing.compare_arms(tables["needles"].query("model == @model and rate == @rate"),
                                       arm, base)
    if found.empty:
        raise NotStored(f"Sharing in {model} is not measured at {rate:.1%}.")
    row = found.iloc[0]
    return Measured.row(row, names, 100, clusters=int(row["needles"]), model=model,
                        rate=f"{rate:.1%}")


@declare("alike-lead", unit="points", place=LEAD, otherwise=(
    "With {rate} of its heads computing, {model} finds {value} points {more|fewer} needles {ci} "
    "if alike heads share than if random ones of the same layers do: {verdict} by the rule of the "
    "plan."))
def alike_lead(model: str, rate: float = LOW) -> Measured:
    """Needles found if alike heads share, minus random ones; the plan's primary comparison."""
    found = _compared(model, rate, later_sharing.ALIKE, later_sharing.RANDOM)
    plan = load_plan("later_sharing")
    by_rule = later_sharing.shown_by(later_sharing.primary(_planned()[0]["needles"], plan))
    return replace(found, verdict=BY_SIGN[int(by_rule[model])])


@declare("place-lead", unit="points", place=PLACE, otherwise=(
    "With {rate} of its heads computing, {model} finds {value} points {more|fewer} needles {ci} "
    "if alike heads share in later layers than if they share in all by one threshold: {verdict}."))
def place_lead(model: str, rate: float = LOW) -> Measured:
    """Needles found if alike heads share in later layers, minus alike heads in all layers."""
    return _compared(model, rate, later_sharing.ALIKE, later_sharing.EVERYWHERE)


@declare("one-threshold-lead", unit="points", place=PLACE, otherwise=(
    "With {rate} of its heads computing, {model} finds {value} points {more|fewer} needles {ci} "
    "if alike heads share in all layers than if random ones share in later layers: {verdict}."))
def one_threshold_lead(model: str, rate: float = LOW) -> Measured:
    """Needles found if alike heads share in all layers, minus random ones in later layers."""
    return _compared(model, rate, later_sharing.EVERYWHERE, later_sharing.RANDOM)


@declare("one-layer", unit="points", place=LAYERS, otherwise=(
    "Sharing in one layer of the {half} changes what smollm2-135m finds by {value} points."))
def one_layer(half: str, asked: str = "needles", spared: Sequence[int] = ()) -> Measured:
    """Mean change of right answers if heads share in one layer of a half; no interval."""
    tables, artifact = savings_curves.saved(LARGE, ONE_LAYER, compute="never")
    table = tables[asked][~tables[asked]["variant"].isin(map(str, spared))]
    change = float(savings_curves.by_half(table, COUNT).set_index("variant").loc[half, "effect"])
    return replace(Measured.count(100 * change, [artifact]),
                   clusters=table["question"].nunique())


@declare("sharing-time", unit="times", place=COSTS, otherwise=(
    "With {heads} computing, {model} reads a prompt in {value} of the time {ci} {base}."))
def sharing_time(costs: pd.DataFrame, model: str, heads: str, base: str, words: str,
                 artifact: str) -> Measured:
    """Time of reading as a multiple of that of another variant; shown means that it is less."""
    row = savings_curves.ratios(costs, "prefill_seconds", base).set_index("variant").loc[heads]
    return Measured.row(row, [artifact], verdict=less_than_one(row), base=words)


def less_than_one(row: pd.Series) -> Verdict:
    """The verdict on a multiple of another's time: shown means that it is less."""
    return SHOWN if row["high"] < 1 else AGAINST if row["low"] > 1 else UNDECIDED


@declare("key-groups", unit="distance", place=MAPS, otherwise=(
    "In {model}, heads of other key groups are {value} {further|less} apart {ci}: {verdict}."))
def apart_in_key_groups(model: str) -> Measured:
    """Mean distance of heads of other key groups, minus that within them; over layers."""
    found = key_groups()
    if model not in found:
        raise NotStored("Their distances are not stored.")
    table, apart = found[model]
    return Measured(apart.interval, [f"likeness/{model}"], len(table))
