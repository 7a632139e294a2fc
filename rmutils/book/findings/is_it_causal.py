"""What exchanged heads return and lose beyond others of their layers, by the rule of the plan."""

from __future__ import annotations

from functools import cache

import pandas as pd

from rmutils import DetectConfig
from rmutils.book.chapters.is_it_causal import effects
from rmutils.book.chapters.is_it_causal.experiment import (
    COPY,
    REMOVE,
    RESTORE,
    IsItCausal,
    is_it_causal_stored,
    planned,
    planned_leaders,
)
from rmutils.book.findings.registry import Measured, declare
from rmutils.core.errors import NotStored
from rmutils.core.experiment import load_plan
from rmutils.core.results import Artifact
from rmutils.heads.detection import detect_stored, even_depths
from rmutils.heads.scores import Head
from rmutils.stats import Interval

SETS, TOKENS, LENGTHS = "fig-causal-sets", "fig-causal-tokens", "fig-causal-lengths"
LARGE = "smollm2-135m"


@cache
def stored() -> dict[str, tuple[IsItCausal, Artifact]]:
    """Look the exchanges of the plan up, model by model."""
    found = {}
    for model, config in planned(load_plan("is_it_causal")).items():
        try:
            found[model] = is_it_causal_stored(model, config, compute="never")
        except NotStored:
            continue
    return found


def _of(model: str) -> tuple[IsItCausal, str]:
    if model not in stored():
        raise NotStored("Make it with `rmutils run is_it_causal -p compute auto`.")
    result, artifact = stored()[model]
    return result, artifact.name


@declare("exchange-beyond-others", unit="points", place=SETS, otherwise=(
    "In {model}, {way} the heads that copy most moves {value} points more of the answer's tokens "
    "{ci} than others of their layers: {verdict}."))
def beyond_others(model: str, way: str) -> Measured:
    """Tokens that restoring returns, or removing loses, by the fewest heads that copy most, minus
    by others of their layers; p is corrected over the primary comparisons of the model.

    Parameters
    ----------
    way : {"restore", "remove"}
    """
    result, name = _of(model)
    row = _fewest(result, way)
    return Measured(_points(row["difference"]), [name], int(row["needles"]), row["p_holm"],
                    words={"model": model, "way": {RESTORE: "restoring", REMOVE: "removing"}[way]})


def _fewest(result: IsItCausal, way: str) -> pd.Series:
    table = effects.effects(result)
    return table[(table["way"] == way) & (table["kind"] == COPY)].sort_values("count").iloc[0]


@declare("removing-minus-restoring", unit="points", place=SETS, otherwise=(
    "In {model}, removing the heads that copy most loses {value} points more of the tokens {ci} "
    "than restoring them returns: {verdict}."))
def removing_minus_restoring(model: str) -> Measured:
    """Tokens that removing the fewest heads loses, minus what restoring them returns."""
    result, name = _of(model)
    count = int(_fewest(result, RESTORE)["count"])
    return Measured(_points(effects.imbalance(result, COPY, count)), [name], words={"model": model})


@declare("own-heads-beyond-shifted", unit="points", place=TOKENS, otherwise=(
    "In {model}, the heads of each token return {value} points more of the tokens {ci} than those "
    "of the token before it: {verdict}."))
def own_heads_beyond_shifted(model: str) -> Measured:
    """Tokens that each token's own heads return, minus those of the token before it; p is corrected
    over the models. An upper bound: own heads are chosen on the very token."""
    _, name = _of(model)
    found = _own_heads()[model]
    return Measured(_points(found.more), [name], p=found.p, words={"model": model})


@cache
def _own_heads() -> dict[str, effects.OwnHeads]:
    return effects.own_heads({model: result for model, (result, _) in stored().items()})


@cache
def by_length() -> tuple[pd.DataFrame, tuple[Head, ...], Artifact]:
    """Compare the copy scores of the two leading heads of SmolLM2, length by length."""
    scores, artifact = detect_stored(LARGE, DetectConfig(
        lengths=(256, 512, 768, 1024, 1536, 2048, 3072, 4096), depths=even_depths(10)),
        compute="never")
    heads = planned_leaders(load_plan("is_it_causal"), scores).heads
    return effects.copy_by_length(scores, heads), tuple(heads), artifact


@declare("leaders-apart", unit="points", place=LENGTHS, otherwise=(
    "At {length} tokens, the copy score of one leading head of SmolLM2 is {value} points higher "
    "{ci} than that of the other: {verdict}."))
def leaders_apart(length: int) -> Measured:
    """Copy score of the head that leads at short prompts, minus that of the one that leads at long
    ones; p is corrected over the lengths."""
    table, _, artifact = by_length()
    row = table.set_index("length").loc[length]
    return Measured(_points(row["difference"]), [artifact.name], p=row["p_holm"],
                    words={"length": length})


def _points(found: Interval) -> Interval:
    return Interval(*(100 * end for end in found))
