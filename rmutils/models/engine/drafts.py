"""Drafts of what a model will write, taken from what it has read (prompt lookup)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

DRAFT = 8  # most tokens that are drafted at once
LONGEST = 32  # length of an n-gram beyond which a longer one predicts no better
SLOW = 1.5
"""If passes write fewer tokens, a single token that occurred before does not make a draft."""


class Pace:
    """How far each pass looks ahead, by how many tokens the last ones wrote."""

    def __init__(self, most: int):
        self.most, self.mean = most, float(most)

    def wrote(self, tokens: int) -> None:
        """Learn what the slowest row of a pass wrote."""
        self.mean = (self.mean + tokens) / 2

    @property
    def window(self) -> int:
        """Tokens that the next pass reads at most beside its first."""
        return min(self.most, round(2 * self.mean))

    @property
    def least(self) -> int:
        """Length of the shortest n-gram that makes a draft."""
        return 2 if self.mean < SLOW else 1


def draft(text: np.ndarray, most: int, least: int = 1) -> np.ndarray:
    """Predict how a text goes on: as it did after the longest n-gram that it ends with."""
    ends, size = np.flatnonzero(text[:-1] == text[-1]), 1
    while len(ends) and size < (LONGEST if len(ends) > 1 else least):
        longer = ends[ends >= size]
        longer = longer[text[longer - size] == text[-1 - size]]
        if not len(longer):
            break
        ends, size = longer, size + 1
    return text[ends[-1] + 1 :][: max(most, 0)] if len(ends) and size >= least else text[:0]


class Row:
    """A prompt and what is said to it so far; `forced`: all that is to be said."""

    def __init__(self, prompt: Sequence[int], limit: int, stop_ids: Collection[int],
                 forced: Sequence[int] | None):
        self.size, self.stop_ids, self.forced = len(prompt), stop_ids, forced is not None
        self.limit = limit if forced is None else len(forced)
        self.text = np.array([*prompt, *([0] * limit if forced is None else forced)])
        self.said, self.ended = 0, not self.limit
        self.looked: list[np.ndarray] = []

    def ahead(self, start: int, pace: Pace) -> np.ndarray:
        """The tokens to read next, counted from the prompt's last one: known ones, then a draft."""
        known, end = self.size + self.said, max(start, 0) + pace.window
        most = min(end, self.limit - 1) - self.said
        drafted = (self.text[known : known + most] if self.forced
                   else draft(self.text[:known], most, pace.least))
        read = self.text[self.size - 1 + start : known]
        return np.concatenate([read, drafted])[: end - start + 1]

    def accept(self, start: int, read: np.ndarray, chosen: np.ndarray, looked: np.ndarray) -> None:
        """Say what the model chooses after what it has read, as long as that was right."""
        for column in range(self.said - start, len(read)):
            known = self.size + self.said
            token = self.text[known] if self.forced else chosen[column]
            if token in self.stop_ids:
                self.ended = True
                return
            self.text[known] = token
            self.looked.append(looked[..., column])
            self.said += 1
            self.ended = self.said == self.limit
            if self.ended or not np.array_equal(read[column + 1 : column + 2], [token]):
                return
