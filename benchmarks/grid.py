"""The paper's grid end to end: three needles, twenty lengths up to 5,000 tokens, ten depths.

The 600 cases are measured in three shares, one for each needle with its text. Shares that are
measured already are kept, so the whole grid can be done bit by bit.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

from benchmarks.measuring import copied
from benchmarks.records import Results
from benchmarks.watching import Asked, rows
from rmutils.book.chapters.speed import FOLDER, REFERENCE
from rmutils.core.config import Config
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
    """Needles of `retrieval_head_detection.py`; the paper does not say how many."""


QUICK = {"model": "tiny-llama", "lengths": tuple(range(220, 420, 20)), "depths": 3}


def measure(settings: Settings = Settings(), folder: Path = FOLDER) -> bool:
    """Measure the shares that are not measured yet.

    Of the two-phase algorithm one case of each length is run: what a case takes depends on its
    length, not on its depth.

    Returns
    -------
    bool
        True if both ways said the same in the cases that both have answered.
    """
    results = Results("grid", settings, folder)
    with copied(settings.model) as model:
        for needle, way in product(range(settings.needles), ("rmutils", REFERENCE)):
            if not list(results.find(way=way, needle=needle)):
                asked = Asked(lengths=settings.lengths, depths=even_depths(settings.depths),
                              needle=needle, joint=True, diagonal=way == REFERENCE)
                for row in rows(way, model, asked):
                    results.add({"needle": needle, **row})
    if passes := [row["passes"] for row in results.rows if "passes" in row]:
        made, steps = map(sum, zip(*passes, strict=True))
        print(f"{made} passes in place of {steps} steps: {steps - made} saved")
    said: dict[str, set] = {}
    for row in results.rows:
        for case, answer in zip(row["cases"], row.get("said", ()), strict=False):
            said.setdefault(case, set()).add(answer)
    different = [case for case, answers in said.items() if len(answers) > 1]
    print(f"{len(different)} answers differ", *different)
    return not different
