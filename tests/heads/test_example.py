"""The step-by-step table of a case agrees with the counts that make the score."""

from __future__ import annotations

import numpy as np

from rmutils.corpora.haystack import load_haystacks
from rmutils.corpora.needles import load_needles
from rmutils.corpora.niah import NiahBuilder
from rmutils.heads.example import answer_case, trace
from rmutils.heads.scoring import copy_counts


def test_trace_ends_at_the_count(lm):
    case = NiahBuilder(lm, load_haystacks()).build(0, load_needles()[0], 300, 0.5)
    everything = (0, len(case.input_ids))  # random models do not find needles: count all copies
    case = case.__class__(**{**vars(case), "needle_span": everything})
    answer = answer_case(lm, case, max_new_tokens=12)
    counts = copy_counts(answer, case.input_ids, everything)
    for head in np.ndindex(*counts.shape):
        steps = trace(lm, case, answer, head)
        assert len(steps) == len(answer.tokens)
        assert steps["so far"].iloc[-1] == counts[head]
        assert (steps.loc[steps["copied"], "written"] ==
                steps.loc[steps["copied"], "token there"]).all()
