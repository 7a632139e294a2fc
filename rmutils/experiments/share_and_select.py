"""Heads that share and layers that select, at once: Figure 8 of Taniguchi and others, on needles.

Planned in `data/plans/share_and_select.yml`.
"""

from __future__ import annotations

import pandas as pd

from rmutils.attention.select_attention import Select
from rmutils.attention.sharing_plans import in_layers, sharing_at, threshold_for
from rmutils.attention.variants import PLAIN
from rmutils.core.results import Artifact, Compute
from rmutils.experiments.later_sharing import ALIKE, planned
from rmutils.experiments.layer_choice import LikenessConfig, square
from rmutils.experiments.savings_curves import look_up
from rmutils.experiments.under_variants import VariantConfig, compare_stored
from rmutils.pipeline.planned_runs import Plan, load_plan
from rmutils.stats import Interval, interval

SHARE, SELECT, BOTH = "share", "select", "both"
"""Arms besides the plain model."""
WANTED = 0.8
"""Section 5: with both, four fifths of the scores remain."""


def share_and_select(
    plan: Plan, *, compute: Compute = "never"
) -> tuple[pd.DataFrame, list[Artifact], list[str]]:
    """Collect the arms: those without selection from chapter 12, the others from here.

    Returns
    -------
    DataFrame, list of Artifact, list of str
        `variant`, `length`, `question`, `place`, `correct`, `kept` (share of tokens); and a command
        line for each arm that is missing. The table is empty if any is.
    """
    p = plan.content
    model, later = next((model, config) for model, config in planned(load_plan("later_sharing"))
                        if model == p["model"] and config.kept == p["sharing"])
    alone, by, missing = look_up(model, later, compute="never")
    alike, alike_by, lacks = look_up(model, LikenessConfig(
        prompts=later.prompts, tokens=later.tokens, layer=12), compute="never")
    if not alike:
        return pd.DataFrame(), [], [*missing, *lacks]
    apart = square(alike["distances"], "distance")
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
    """Needles found with both, less the wanted share of those that the plain model finds: the
    plan's primary outcome."""
    found = needles.pivot(index=["question", "place"], columns="variant",
                          values="correct").astype(float)
    return interval(found[BOTH] - WANTED * found[PLAIN],
                    found.index.get_level_values("question"), bounds=(-WANTED, 1.0))
