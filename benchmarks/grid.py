"""The paper's grid end to end: three needles, twenty lengths up to 5,000 tokens, ten depths.

The 600 cases are measured in fifteen shares. A share has one needle, every fifth length, and all
ten depths; the first three have the middle one of each five lengths, so that their mean length is
the grid's. Shares that are measured already are kept, so the whole grid can be done bit by bit.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

from benchmarks.measuring import copied
from benchmarks.records import Results
from benchmarks.watching import Asked, rows
from rmutils.config import Config
from rmutils.evaluation.speed import FOLDER, REFERENCE
from rmutils.heads.detection import even_depths


class Settings(Config):
    """The grid, and how it is cut into shares."""

    model: str = "smollm2-135m"
    lengths: tuple[int, ...] = tuple(range(250, 5001, 250))
    """Section 4.1: "20 different context lengths uniformly distributed between 0 and 5K". A length
    of 0 holds no needle."""
    depths: int = 10
    """Section 4.1: "the needle inserted at 10 depth positions for each length"."""
    needles: int = 3
    """Of `retrieval_head_detection.py`, which the paper does not count."""
    order: tuple[int, ...] = (2, 0, 4, 1, 3)
    """Every so-manieth length, from this one on."""
    every: int = 5
    """Of the two-phase algorithm only every fifth case is run, two of each length and needle: what
    a case takes depends on its length, not on its depth."""


QUICK = {"model": "tiny-llama", "lengths": tuple(range(220, 420, 20)), "depths": 3}


def measure(settings: Settings = Settings(), folder: Path = FOLDER, shares: int = 1) -> bool:
    """Measure the first shares, where they are not measured yet.

    Returns
    -------
    bool
        True if both ways said the same in the cases that both have answered.
    """
    results, stride = Results("grid", settings, folder), len(settings.order)
    wanted = [*product(settings.order, range(settings.needles))][:shares]
    with copied(settings.model) as model:
        for (start, needle), way in product(wanted, ("rmutils", REFERENCE)):
            share = {"start": start, "needle": needle}
            if not list(results.find(way=way, **share)):
                asked = Asked(
                    lengths=settings.lengths[start::stride], depths=even_depths(settings.depths),
                    needle=needle, joint=True, every=1 if way == "rmutils" else settings.every)
                for row in rows(way, model, asked):
                    results.add({**share, **row})
    said: dict[str, set] = {}
    for row in results.rows:
        for case, answer in zip(row["cases"], row.get("said", ()), strict=False):
            said.setdefault(case, set()).add(answer)
    different = [case for case, answers in said.items() if len(answers) > 1]
    print(f"{len(different)} answers differ", *different)
    return not different
