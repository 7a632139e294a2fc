"""Scores by what a head does while it writes the answer: where it looks, and what it adds.

`attention` and `locos` compare keys of the needle with all others, as published with LOCOS (arXiv
2607.01002); `dla` is direct logit attribution. What a head adds to a logit is defined in
`rmutils.heads.one_run`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rmutils.attention.decoding import Answer
from rmutils.corpora.niah import NiahCase
from rmutils.heads.one_run import OneRunScore, WatchedAnswer
from rmutils.heads.score_kinds import SCORES
from rmutils.heads.scores import Values


class _Contribution(OneRunScore):
    """Base of the scores here: a mean over the steps that write the needle's answer."""

    def score(self, case: NiahCase, answer: Answer) -> Values:
        assert isinstance(answer, WatchedAnswer)
        if not answer.steps:
            return np.zeros(self.lm.shape)
        needle = self.needle_tokens(case)
        keys = len(case.input_ids) + np.array(answer.steps)
        weight = (needle / (keys - needle))[:, None, None]
        return np.asarray(self.by_step(answer, weight).mean(0))

    def by_step(self, answer: WatchedAnswer, weight: NDArray[np.float64]) -> Values:
        """Return the score in each step, (steps, layers, heads); `weight` is that of other keys."""
        raise NotImplementedError


@SCORES.register("attention")
class AttentionContrast(_Contribution):
    """Attention to the needle, less that to as many other tokens."""

    def by_step(self, answer: WatchedAnswer, weight: NDArray[np.float64]) -> Values:
        return np.asarray(answer.attention - weight * (1 - answer.attention))


@SCORES.register("dla")
class LogitAttribution(_Contribution):
    """The head's contribution to the logit of the token that is written."""

    def by_step(self, answer: WatchedAnswer, weight: NDArray[np.float64]) -> Values:
        return answer.from_all


@SCORES.register("locos")
class Locos(_Contribution):
    """The head's contribution to the logit from the needle, less that from as many others."""

    def by_step(self, answer: WatchedAnswer, weight: NDArray[np.float64]) -> Values:
        on = answer.from_needle
        return np.asarray(on - weight * (answer.from_all - on))
