"""What the ten steps of the lesson arrive at, computed while the page is built."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rmutils.book.findings import NONE, Measured, declare
from rmutils.evaluation.answers import find_needles
from rmutils.heads.detection import DetectConfig
from rmutils.heads.masking import mask_heads
from rmutils.heads.scores import Head, HeadScores
from rmutils.models import LanguageModel
from rmutils.stats import Interval, interval

MAP = "fig-guided-map"


def needles_found(lm: LanguageModel, config: DetectConfig,
                  masked: Sequence[Head]) -> npt.NDArray[np.float64]:
    """Share of each needle's cases that is found while heads are masked."""
    with mask_heads(lm, masked):
        answers = find_needles(lm, config)
    return answers.groupby("needle")["success"].mean().to_numpy()


@declare("lesson-needles-lost", unit="points", place=MAP, otherwise=(
    "Without its highest heads, the model finds {value} points fewer needles {ci} than without "
    "others of the same layers: {verdict}."))
def lesson_needles_lost(without: npt.NDArray[np.float64], others: npt.NDArray[np.float64]
                        ) -> Measured:
    """Share of each needle's cases found without others of the layers, minus without the heads."""
    return Measured(interval(100 * (others - without)), (), len(others))


@declare("lesson-highest-score", unit="percent", place=MAP, otherwise=(
    "The highest head copies {value} % of a needle {ci}."))
def lesson_highest_score(scores: HeadScores, head: Head) -> Measured:
    """Percent of a needle that a head copies."""
    ends = (scores.mean[head], *scores.interval(0.95)[head])
    return Measured(Interval(*(100 * float(end) for end in ends)), (), verdict=NONE)
