"""Where a word seems to stand, head by head."""

import numpy as np
from matplotlib.figure import Figure

from rmutils.book.figures.style import BLUE, FAINT, FOR_A_PHONE, GREY, PHONE, WIDTH, new_axes


def rulers(ratios: np.ndarray, trained: int, words: tuple[int, ...]) -> Figure:
    """A row for each head: words at a distance, divided by the head's ratio."""
    figure = _rulers(ratios, trained, words, WIDTH)
    FOR_A_PHONE[figure] = _rulers(ratios, trained, words, PHONE)
    return figure


def _rulers(ratios: np.ndarray, trained: int, words: tuple[int, ...], width: float) -> Figure:
    figure, axes = new_axes(0.9 + 0.42 * len(ratios), width=width)
    axes.axvspan(0, trained, color=FAINT)
    axes.text(trained / 2, -0.75, "distances met in training", ha="center", fontsize=9)
    for row, ratio in enumerate(ratios):
        for word in words:
            seen = word / ratio
            axes.plot(seen, row, "o", color=BLUE if seen <= trained else GREY)
            axes.text(seen, row - 0.2, f"{seen:.0f}", ha="center", fontsize=9)
    axes.set_yticks(range(len(ratios)), [f"divides by {ratio:.2f}" for ratio in ratios])
    axes.set(xlim=(0, max(words) * 1.08), ylim=(len(ratios) - 0.5, -1.1),
             xlabel="tokens back, as the head sees it")
    return figure
