"""The anchor score: how much of its attention a head gives the needle before it answers."""

from __future__ import annotations

import numpy as np

from rmutils.attention.decoding import Answer
from rmutils.corpora.niah import NiahCase
from rmutils.heads.one_run import OneRunScore, WatchedAnswer
from rmutils.heads.score_kinds import SCORES
from rmutils.heads.scores import Values


@SCORES.register("anchor")
class AnchorScore(OneRunScore):
    """The largest attention to the needle, found or not, from one of the last 8 tokens of the
    prompt, the observation window of SnapKV and HeadKV (arXiv 2410.19258)."""

    only_found = False

    def score(self, case: NiahCase, answer: Answer) -> Values:
        assert isinstance(answer, WatchedAnswer)
        return np.asarray(answer.anchor.max(0))
