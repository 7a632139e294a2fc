"""How many heads to mask, and the tau that does it, read off a masking sweep (appendix B)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from rmutils.book.chapters.masking_sweep.experiment import Sweep, count_at
from rmutils.book.experiments.sweep_questions import BY_HEART, HAYSTACK, NEXT_WORDS
from rmutils.corpora.world.tasks import TASKS
from rmutils.heads.scores import HeadScores
from rmutils.stats import ANY, DIFFERENCE, POSITIVE, SHARE, Bounds, Interval, interval

SHARES = {HAYSTACK: (HAYSTACK,), "tasks": tuple(TASKS), BY_HEART: (BY_HEART,),
          NEXT_WORDS: (NEXT_WORDS,)}
"""Name of a measure -> what it is the share of right answers to."""
REPETITION, PERPLEXITY = "repetition", "perplexity"
KEYS = ["task", "sample"]
Mask = tuple[str, int]  # policy and number of heads
UNMASKED: Mask = ("whole", 0)


def share_curves(result: Sweep) -> dict[str, pd.DataFrame]:
    """Shares of right answers: a curve (see `curve`) for each of `SHARES` that was measured."""
    parts = {name: result.answers[result.answers["task"].isin(tasks)]
             for name, tasks in SHARES.items()}
    return {name: curve(part, "correct") for name, part in parts.items() if len(part)}


WIDE = 0.7  # intervals that cover more than this of the scale, on average, say next to nothing


def telling(curves: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return the curves of shares whose intervals are not all too wide to say anything."""
    return {name: one for name, one in curves.items() if (one["high"] - one["low"]).mean() <= WIDE}


def speech_curves(result: Sweep) -> dict[str, pd.DataFrame]:
    """Repetition rate and perplexity of answers to short instructions, a curve each."""
    nats = curve(result.speech, "surprise", bounds=POSITIVE)
    return {REPETITION: curve(result.speech, "repetition"), PERPLEXITY: nats.assign(
        **{name: np.exp(nats[name]) for name in ("value", "low", "high")},
        **{name: np.expm1(nats[name]) for name in ("change", "change_low", "change_high")})}


def by_task(result: Sweep, count: int) -> pd.DataFrame:
    """Every kind of question by itself, with `count` heads masked."""
    rows = []
    for task, part in result.answers.groupby("task", sort=False):
        one = curve(part[part["count"].isin((0, count))], "correct")
        one = one.assign(policy=one["policy"].where(one["count"] > 0, "whole"))
        rows.append(one.drop_duplicates("policy").assign(
            task=task, samples=part["sample"].nunique()))
    return pd.concat(rows, ignore_index=True)


def curve(rows: pd.DataFrame, value: str, *, bounds: Bounds = SHARE) -> pd.DataFrame:
    """Mean at each count, and its change against the whole model on the same questions."""
    found = []
    for policy in rows.loc[rows["policy"] != "whole", "policy"].unique():
        for count in [0, *sorted(rows.loc[rows["policy"] == policy, "count"].unique())]:
            mask = (policy, count) if count else UNMASKED
            found.append((policy, count, *mean_under(rows, value, mask, bounds=bounds),
                          *mean_under(rows, value, mask, UNMASKED, bounds=bounds)))
    return pd.DataFrame(found, columns=["policy", "count", "value", "low", "high", "change",
                                        "change_low", "change_high"])


def mean_under(rows: pd.DataFrame, value: str, mask: Mask, minus: Mask | None = None, *,
               bounds: Bounds = SHARE) -> Interval:
    """Mean of a measure under a mask, minus that under another one on the same questions."""
    table = _by_question(rows, value, mask)
    values, clusters = table.to_numpy(), pd.factorize(table.index.droplevel("sample"))[0]
    if minus is not None:
        values = values - _by_question(rows, value, minus).loc[table.index].to_numpy()
        bounds = DIFFERENCE if bounds == SHARE else ANY
    cases = len(np.unique(clusters)) if bounds in (SHARE, DIFFERENCE) and minus != mask else None
    return interval(values, clusters, seeds=True, bounds=bounds, cases=cases)


def _by_question(rows: pd.DataFrame, value: str, mask: Mask) -> pd.DataFrame:
    """A row per question (with its cluster), a column per random choice of heads."""
    policy, count = mask
    chosen = rows[(rows["policy"] == policy) & (rows["count"] == count)]
    return chosen.pivot(index=[*KEYS, "cluster"], columns="draw", values=value).astype(float)


COLLAPSED = 0.1
"""Appendix B: masking more heads "leads to a sharp performance collapse, with scores dropping below
0.1"."""


def worse_from(curve: pd.DataFrame, policy: str = "retrieval", *, sign: int = -1) -> int | None:
    """Where a measure "begins to degrade noticeably" (appendix B), by a rule of ours."""
    one = _masked(curve, policy)
    nearest = one["change_high"] if sign < 0 else one["change_low"]
    return _from_then_on(one["count"], sign * nearest > 0)


def collapsed_from(curve: pd.DataFrame) -> int | None:
    """The least number of highest heads from which the value stays below `COLLAPSED`, or None."""
    one = _masked(curve, "retrieval")
    return _from_then_on(one["count"], one["value"] < COLLAPSED)


def _masked(curve: pd.DataFrame, policy: str) -> pd.DataFrame:
    return curve[(curve["policy"] == policy) & (curve["count"] > 0)].sort_values("count")


def _from_then_on(counts: Iterable[int], holds: Iterable[bool]) -> int | None:
    first = None
    for count, yes in zip(counts, holds, strict=True):
        first = (count if first is None else first) if yes else None
    return first


def tau_for(scores: HeadScores, count: int) -> tuple[float, float]:
    """The thresholds that select the `count` highest heads: above the first, up to the second."""
    means = np.sort(scores.mean.ravel())[::-1]
    return float(means[count]) if count < len(means) else -np.inf, float(means[count - 1])


def in_words(scores: HeadScores, counts: Sequence[int]) -> str | None:
    """Numbers of heads from first to last, their share and thresholds; None if there are none."""
    if not counts:
        return None
    low, high = tau_for(scores, counts[-1])[0], tau_for(scores, counts[0])[1]
    ends = sorted({counts[0], counts[-1]})
    shares = " to ".join(f"{100 * count / scores.mean.size:.1f}" for count in ends)
    taus = dict.fromkeys(f"{tau:.3f}" for tau in (low, high) if np.isfinite(tau))
    return (f"{' to '.join(map(str, ends))} ({shares} % of heads, τ "
            f"{'' if np.isfinite(low) else 'up to '}{' to '.join(taus)})")


def read_off(curves: Mapping[str, pd.DataFrame], scores: HeadScores) -> pd.DataFrame:
    """Where each measure becomes worse and where it collapses."""
    rows = []
    for name, curve in curves.items():
        sign = 1 if name in (REPETITION, PERPLEXITY) else -1
        ends = worse_from(curve, sign=sign), collapsed_from(curve) if sign < 0 else None
        worse, collapsed = (in_words(scores, [n] if n else []) for n in ends)
        others = worse_from(curve, "non-retrieval", sign=sign)
        rows.append({"measure": name, "worse from": worse, f"below {COLLAPSED:g} from": collapsed,
                     "random others: worse from": str(others) if others else None})
    return pd.DataFrame(rows)


class Window(NamedTuple):
    """Counts of a sweep that lie in a sweet spot, and whether the sweep shows its upper end."""

    counts: list[int]
    closed: bool


def windows(shares: Mapping[str, pd.DataFrame], repetition: pd.DataFrame) -> dict[str, Window]:
    """The sweet spot, as counts of the sweep, by the paper's figure and by its reasons."""
    found = {name: _between(curve, worse_from(curve), collapsed_from(curve))
             for name, curve in shares.items()}
    haystack = shares[HAYSTACK]
    return found | {"contrast and repetition": _between(haystack, worse_from(haystack),
                                                        worse_from(repetition, sign=1))}


def _between(curve: pd.DataFrame, start: int | None, end: int | None) -> Window:
    counts = [] if start is None else [count for count in _masked(curve, "retrieval")["count"]
                                       if start <= count < (end or np.inf)]
    return Window(counts, closed=end is not None or start is None)


INSIDE = YES, FEWER, MORE, OPEN = ("yes", "no: too few heads", "no: too many heads", "cannot tell")
"""Where a threshold lies; it cannot tell beyond the start of a sweet spot without an upper end."""


def verdicts(shares: Mapping[str, pd.DataFrame], repetition: pd.DataFrame, scores: HeadScores,
             tau: float) -> pd.DataFrame:
    """Say whether a threshold falls into the sweet spot."""
    used, rows = count_at(scores, tau), []
    for label, (counts, closed) in windows(shares, repetition).items():
        inside = None if not counts else (
            FEWER if used < counts[0] else OPEN if not closed else
            MORE if used > counts[-1] else YES)
        words = in_words(scores, counts[:1] if counts and not closed else counts)
        rows.append({"sweet spot by": label,
                     "heads": words if closed else f"from {words} on: no upper end was found",
                     "τ in use": f"{tau:g} ({used} heads)",
                     "inside": inside})
    return pd.DataFrame(rows)
