"""Sliding windows: which needles they reach, and how much of retrieval the full layers do."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rmutils.errors import UserError
from rmutils.heads.scores import DECIMALS, HeadScores
from rmutils.stats import RESAMPLES, cluster_bootstrap, percentiles

WITHIN, BEYOND, ACROSS = "within the window", "beyond the window", "across its edge"
"""Where a needle stands for a sliding layer while the answer is written."""


def full_layers(layers: int, every: int) -> np.ndarray:
    """True for the last layer of each `every`: the full ones of Gemma 3 (6) and Olmo 3 (4)."""
    return np.arange(1, layers + 1) % every == 0


def sides(cases: pd.DataFrame, window: int, answer: int) -> np.ndarray:
    """`WITHIN`, `BEYOND` or `ACROSS` for each case.

    A token at position i sees the positions above i - `window`. `WITHIN`: the last token of the
    longest answer still comes from a row that sees the whole needle. `BEYOND`: not even the first
    comes from a row that sees any of it, so a sliding layer cannot score. `ACROSS`: all others.

    Parameters
    ----------
    cases : DataFrame
        `HeadScores.cases`.
    window : int
        Tokens that a sliding layer sees, its own included.
    answer : int
        Longest answer in tokens, `DetectConfig.max_new_tokens`.

    Raises
    ------
    UserError
        The cases come from a version of this project that did not keep where the needle stands.
    """
    if "needle_start" not in cases:
        raise UserError("this stored detection does not say where its needles stand. Make it anew, "
                        "with the same command and `--compute always`.")
    start, last = cases["needle_start"], cases["prompt_tokens"] - 1
    within = start > last + answer - 1 - window
    beyond = start + cases["needle_tokens"] - 1 <= last - window
    return np.select([within, beyond], [WITHIN, BEYOND], ACROSS)


def split(scores: HeadScores, window: int, answer: int) -> dict[str, HeadScores]:
    """The scores of each side of the window, where any needle was found there."""
    place = sides(scores.cases, window, answer)
    found = scores.cases["success"].to_numpy()
    return {side: scores.where(place == side) for side in (WITHIN, BEYOND)
            if (found & (place == side)).any()}


def summarize(
    scores: HeadScores, *, window: int, every: int, tau: float, answer: int,
    resamples: int = RESAMPLES, seed: int = 0,
) -> pd.DataFrame:
    """Both sides of the window in numbers, each with a 95 % interval over needles.

    Returns
    -------
    DataFrame
        `side`, `cases`, `statistic`, `value`, `low`, `high`; a side without cases has no rows.
        Statistics: `found`, the share of needles found, 0 to 1; and where any was found:
        `full_share`, the share of the sum of all scores that heads of full layers have; `heads`,
        the number of heads at or above `tau`; `full_heads`, those of them in full layers;
        `full_mean`, `sliding_mean`, the mean score of a head of either kind.
    """
    place = sides(scores.cases, window, answer)
    full = full_layers(scores.shape[0], every)
    rows = []
    for side in (side for side in (WITHIN, BEYOND) if side in place):
        cases = scores.cases[place == side]
        drawn = cluster_bootstrap(cases["success"].to_numpy(), cases["needle"].to_numpy(),
                                  resamples=resamples, seed=seed)
        rows.append((side, len(cases), "found", cases["success"].mean(), *percentiles(drawn)))
    for side, part in split(scores, window, answer).items():
        means = part.bootstrap(resamples=resamples, seed=seed)
        both = np.concatenate([part.mean[None], means]).round(DECIMALS)
        kinds = both[:, full], both[:, ~full]
        at_tau = [(kind >= tau).sum((1, 2)) for kind in kinds]
        for name, values in {
            "full_share": kinds[0].sum((1, 2)) / np.maximum(both.sum((1, 2)), 1e-12),
            "heads": at_tau[0] + at_tau[1], "full_heads": at_tau[0],
            "full_mean": kinds[0].mean((1, 2)), "sliding_mean": kinds[1].mean((1, 2)),
        }.items():
            rows.append((side, int((place == side).sum()), name, float(values[0]),
                         *percentiles(values[1:])))
    return pd.DataFrame(rows, columns=["side", "cases", "statistic", "value", "low", "high"])
