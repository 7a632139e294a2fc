"""Which heads are masked along a sweep: ever more of the highest, and as many random others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from rmutils.errors import UserError
from rmutils.heads.scores import DECIMALS, Head, HeadScores


@dataclass(frozen=True)
class Masking:
    """Heads that are masked together.

    Attributes
    ----------
    policy : {"whole", "retrieval", "non-retrieval"}
        None, the highest ones, or random others.
    draw : int
        Which of the random choices; 0 for the other policies.
    heads : tuple of (layer, head)
    """

    policy: Literal["whole", "retrieval", "non-retrieval"]
    draw: int
    heads: tuple[Head, ...]

    @property
    def key(self) -> dict[str, str | int]:
        """`policy`, `draw` and `count`, which tell it from all others of a plan."""
        return {"policy": self.policy, "draw": self.draw, "count": len(self.heads)}


def count_at(scores: HeadScores, tau: float) -> int:
    """Number of heads with a mean score of at least `tau`."""
    return int((scores.mean.round(DECIMALS) >= tau).sum())


def masking_plan(
    scores: HeadScores, counts: Collection[int], *, taus: Collection[float], draws: int, seed: int
) -> list[Masking]:
    """The whole model, then for each count the highest heads and random others.

    Parameters
    ----------
    counts : collection of int
        How many heads; the numbers of heads at or above each of `taus` are added.
    taus : collection of float
        The others never reach the lowest of these, nor are they among the highest `count`. Where so
        few are left that there is no choice, none are drawn.
    draws : int
        Random choices for each count.
    seed : int
        Of the first of them; the next ones follow.

    Raises
    ------
    UserError
        The model has fewer heads than are to be masked.
    """
    ranking = scores.ranking()
    reached = [count_at(scores, tau) for tau in taus]
    plan = [Masking("whole", 0, ())]
    for count in sorted({*counts, *reached} - {0}):
        if count > len(ranking):
            raise UserError(f"{count} heads are to be masked, but {scores.model} has "
                            f"{len(ranking)}. Choose counts up to that.")
        plan.append(Masking("retrieval", 0, tuple(ranking[:count])))
        spared = ranking[:max(count, *reached)]
        if len(ranking) - len(spared) > count:
            plan += [Masking("non-retrieval", draw, tuple(scores.select_random(
                count, exclude=spared, seed=seed + draw))) for draw in range(draws)]
    return plan
