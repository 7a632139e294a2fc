"""A small check of the coverage page: settings that are chosen by the test."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pandas as pd

from rmutils.book.chapters.main_tables.task_effects import scores_of
from rmutils.core.experiment import load_plan

Array = npt.NDArray[np.float64]


def flattery(samples: pd.DataFrame, sizes: Sequence[int], halves: int) -> pd.DataFrame:
    """Choose the best of some settings by half of the texts, again and again."""
    texts = samples.assign(dataset=samples["cluster"].str.rpartition(" ")[0])
    table = texts.groupby(["stratum", "dataset", "length", "cluster", "seed"], sort=False)[
        "score"].agg(["sum", "count"]).unstack("seed")
    cells = table.index.to_frame(index=False)
    groups = [rows.to_numpy() for rows in cells.groupby(
        ["dataset", "length"], sort=False).groups.values()]
    categories = pd.factorize(cells["stratum"])[0]
    sums, counts = (table[part].to_numpy(float) for part in ("sum", "count"))
    rng, rows = np.random.default_rng(0), []
    for _ in range(halves):
        chosen = np.zeros(len(cells), bool)
        for group in groups:
            chosen[rng.permutation(group)[: len(group) // 2 + rng.integers(len(group) % 2 + 1)]] = 1
        shown, real = (_averages(sums, counts, categories, half) for half in (chosen, ~chosen))
        for size in sizes:
            for some in map(list, combinations(range(len(shown)), size)):
                best = some[int(np.argmax(shown[some]))]
                rows.append((size, *(each[best] - each[some].mean() for each in (shown, real))))
    found = pd.DataFrame(rows, columns=["settings", "shown", "real"])
    return found.groupby("settings", as_index=False).mean().assign(
        flattery=lambda means: means["shown"] - means["real"])


def _averages(sums: Array, counts: Array, categories: npt.NDArray[np.intp], half: object) -> Array:
    """Return the mean of the categories' means of each setting, over half of the texts."""
    inside = np.eye(categories.max() + 1)[categories[half]].T
    asked = inside @ counts[half]
    return np.asarray((inside @ sums[half])[asked[:, 0] > 0] / asked[asked[:, 0] > 0]).mean(0)


def planned_flattery() -> pd.DataFrame:
    """Return `flattery` by the plan, of each `model`; of stored scores."""
    plan = load_plan("left_tables").content["flattery"]
    return pd.concat([flattery(
        scores_of(model, [plan["strategy"]])[0], plan["k"], plan["halves"]).assign(model=model)
        for model in plan["models"]], ignore_index=True)
