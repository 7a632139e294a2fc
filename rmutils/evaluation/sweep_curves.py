"""From the rows of a masking sweep to curves with intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rmutils.corpora.world.tasks import TASKS
from rmutils.evaluation.masking_sweep import Sweep
from rmutils.evaluation.sweep_questions import BY_HEART, HAYSTACK, NEXT_WORDS
from rmutils.stats import RESAMPLES, cluster_bootstrap, percentiles

SHARES = {HAYSTACK: (HAYSTACK,), "tasks": tuple(TASKS), BY_HEART: (BY_HEART,),
          NEXT_WORDS: (NEXT_WORDS,)}
"""Name of a measure -> what it is the share of right answers to."""
REPETITION, PERPLEXITY = "repetition", "perplexity"
KEYS = ["task", "sample"]


def share_curves(result: Sweep) -> dict[str, pd.DataFrame]:
    """Shares of right answers: a curve (see `curve`) for each of `SHARES` that was measured."""
    parts = {name: result.answers[result.answers["task"].isin(tasks)]
             for name, tasks in SHARES.items()}
    return {name: curve(part, "correct") for name, part in parts.items() if len(part)}


def speech_curves(result: Sweep) -> dict[str, pd.DataFrame]:
    """Repetition rate and perplexity of answers to short instructions, a curve each.

    The perplexity of a masking is the geometric mean of that of its answers; its change is a share
    of that of the whole model.
    """
    nats = curve(result.speech, "surprise")
    return {REPETITION: curve(result.speech, "repetition"), PERPLEXITY: nats.assign(
        **{name: np.exp(nats[name]) for name in ("value", "low", "high")},
        **{name: np.expm1(nats[name]) for name in ("change", "change_low", "change_high")})}


def by_task(result: Sweep, count: int) -> pd.DataFrame:
    """Every kind of question by itself, with `count` heads masked.

    Returns
    -------
    DataFrame
        `task`, `samples`, then the columns of `curve`; a row for the whole model (with a policy of
        `whole`), and one for each policy that has this count.
    """
    rows = []
    for task, part in result.answers.groupby("task", sort=False):
        one = curve(part[part["count"].isin((0, count))], "correct")
        one = one.assign(policy=one["policy"].where(one["count"] > 0, "whole"))
        rows.append(one.drop_duplicates("policy").assign(
            task=task, samples=part["sample"].nunique()))
    return pd.concat(rows, ignore_index=True)


def curve(rows: pd.DataFrame, value: str, *, resamples: int = RESAMPLES, seed: int = 0
          ) -> pd.DataFrame:
    """Mean at each count, and its change against the whole model on the same questions.

    The bootstrap draws whole clusters of questions and, where there are several, random choices of
    heads; both are resampled at once, so the interval holds either chance.

    Parameters
    ----------
    rows : DataFrame
        Of one measure: `policy`, `draw`, `count`, `task`, `sample`, `cluster` and `value`.

    Returns
    -------
    DataFrame
        `policy`, `count`, `value`, `low`, `high`, `change`, `change_low`, `change_high` (95 %). The
        whole model, with a count of 0, begins the curve of each policy.
    """
    one = rows[rows["policy"] == "whole"].set_index(KEYS)
    whole, clusters = one[value].astype(float), one.groupby(["task", "cluster"]).ngroup()
    found = []
    for policy, of_policy in rows[rows["policy"] != "whole"].groupby("policy", sort=False):
        found.append((policy, 0, *_point(whole, whole.to_frame(), clusters, resamples, seed)))
        for count, part in of_policy.groupby("count"):
            draws = part.pivot(index=KEYS, columns="draw", values=value).loc[whole.index]
            found.append((policy, count, *_point(whole, draws, clusters, resamples, seed)))
    return pd.DataFrame(found, columns=["policy", "count", "value", "low", "high", "change",
                                        "change_low", "change_high"])


def _point(whole: pd.Series, draws: pd.DataFrame, clusters: pd.Series, resamples: int, seed: int
           ) -> tuple[float, ...]:
    columns = np.column_stack([whole, draws]).astype(float)
    means = cluster_bootstrap(columns, clusters.to_numpy(), resamples=resamples, seed=seed)
    of = draws.shape[1]
    weights = np.random.default_rng([seed, 1]).multinomial(of, np.full(of, 1 / of), resamples) / of
    masked = (means[:, 1:] * weights).sum(1)
    value = float(draws.to_numpy(dtype=float).mean())
    return (value, *percentiles(masked), value - whole.mean(), *percentiles(masked - means[:, 0]))
