"""The three findings of the first page and of the README, computed from stored results.

The README holds them as text; a test compares it with what comes out here.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from rmutils.experiments.main_tables import contrasts, evaluated, gains
from rmutils.experiments.masking_sweep import count_at, scored
from rmutils.figures.report import number
from rmutils.figures.sentences import by_sign
from rmutils.heads import HeadScores
from rmutils.models.known_models import tau_of
from rmutils.models.loading import corpus_of
from rmutils.paper.effects.head_effects import needles_lost_beyond_others
from rmutils.paper.effects.task_effects import EVALUATIONS
from rmutils.paper.tables import load_published_maps
from rmutils.paper.verdicts import Effect
from rmutils.stats import Interval

LARGE = "smollm2-135m"
MODELS = ("tiny-llama", "tiny-qwen3", "tiny-olmo3", LARGE)
CONTROL = "non-retrieval-mask"
"""Masks as many other heads, of any layer; it may have fewer pairs and steps than RetMask."""
NUMBERS = ("none", "one", "two", "three", "four")


def key_findings() -> list[str]:
    """Return the findings, a bold sentence and its numbers each.

    Raises
    ------
    NotStored
        A result is missing.
    """
    scores, _ = scored(LARGE, compute="never")
    tables = {model: evaluated(model, EVALUATIONS[corpus_of(model)], ["retmask", CONTROL])
              for model in MODELS}
    return [few_heads(needles_lost_beyond_others(LARGE), scores),
            training({model: gains(found) for model, found in tables.items()},
                     {model: contrasts(found) for model, found in tables.items()}),
            copies(load_published_maps())]


def few_heads(lost: Effect, scores: HeadScores) -> str:
    """Say what SmolLM2 misses without its retrieval heads, beside as many others."""
    count, found = count_at(scores, tau_of(LARGE)), Interval(lost.value, lost.low, lost.high)
    lead = by_sign(found, "A few heads find the facts", "The highest heads find no facts",
                   "Whether a few heads find the facts is open")
    return (f"**{lead}.** Switch off {count} of SmolLM2's {scores.mean.size} attention heads, "
            "those that copy most, and it misses "
            f"{number(*(100 * end for end in found))} percentage points more of the facts hidden "
            f"in a long text than without {count} random others of any layer.")


def training(gained: Mapping[str, pd.DataFrame], less: Mapping[str, pd.DataFrame]) -> str:
    """Say in how many models RetMask raises the score on long texts, and beats its control.

    Parameters
    ----------
    gained, less : mapping
        Model -> table as from `rmutils.experiments.main_tables.gains` and `contrasts`.
    """
    own = {model: _row(table, "retmask") for model, table in gained.items()}
    more = {model: _row(table, CONTROL) for model, table in less.items()}
    raised, beats = (sum(found.low > 0 for found in one.values()) for one in (own, more))
    return (f"**RetMask raises the score on long texts in {NUMBERS[raised]} of "
            f"{NUMBERS[len(own)]} models, and in {NUMBERS[beats]} by more than a training on "
            f"pairs from other heads.** On SmolLM2 it gains {number(*own[LARGE])} of 100 points, "
            f"{number(*more[LARGE])} more than with other heads.")


def _row(table: pd.DataFrame, strategy: str) -> Interval:
    return Interval(*table.set_index("strategy").loc[strategy, ["effect", "low", "high"]])


def copies(maps: pd.DataFrame) -> str:
    """Say how many of the published detection runs are distinct, each model on its own.

    Parameters
    ----------
    maps : DataFrame
        As from `rmutils.paper.load_published_maps`.
    """
    distinct = int(maps.groupby("model")["map"].nunique().sum())
    return ("**Most of the authors' published detection runs are copies.** Of "
            f"{len(maps)} runs on {maps['model'].nunique()} models, only {distinct} differ from "
            "one another, so intervals over these runs are too narrow.")
