"""Are heads that share a key head more alike than others? Section 3.1 sees no sign of it."""

from __future__ import annotations

import pandas as pd

from rmutils.core.results import stored
from rmutils.stats import DIFFERENCE, contrast
from rmutils.stats.contrast import Contrast

LIKENESS = "likeness"
GROUPS = {"smollm2-135m": 3, "qwen2.5-coder-0.5b": 7, "qwen2.5-coder-1.5b": 6}
"""Query heads of each key head. `gemma3-270m` has one key head, so all of its heads share it."""


def group_distances(distances: pd.DataFrame, group: int) -> pd.DataFrame:
    """Return the mean distance of two heads, within key groups and otherwise.

    `distances`: `layer`, `head`, `other`, `distance`; `group` query heads share a key head.

    Columns: `within`, `otherwise`, by `layer`.
    """
    others = distances[distances["head"] != distances["other"]]
    same = others["head"] // group == others["other"] // group
    return others.assign(where=same.map({True: "within", False: "otherwise"})).pivot_table(
        index="layer", columns="where", values="distance")[["within", "otherwise"]]


def key_groups() -> dict[str, tuple[pd.DataFrame, Contrast]]:
    """Return `group_distances` of each model whose distances are stored, and by how much pairs of
    other groups are further apart, with an interval over layers."""
    found = {}
    for artifact in stored(LIKENESS):
        model = artifact.name.split("/")[1]
        if artifact.shipped and model in GROUPS:
            table = group_distances(
                pd.read_parquet(artifact.path("distances.parquet")), GROUPS[model])
            found[model] = table, contrast(table["otherwise"] - table["within"], bounds=DIFFERENCE)
    return found
