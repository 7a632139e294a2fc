"""The step-by-step table of a case agrees with the counts that make the score."""

import numpy as np
import pytest
import torch

from rmutils.book.chapters.preliminaries.experiment import answer_case, attention_rows, trace
from rmutils.corpora.niah import NiahBuilder, load_haystacks, load_needles
from rmutils.heads.copy_score import copy_counts
from tests.conftest import two_families


@two_families
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


@torch.no_grad()
def test_attention_rows_as_the_slow_way(lm):
    """Read everything again for each token and look at the last row: also beyond windows."""
    case = NiahBuilder(lm, load_haystacks()).build(0, load_needles()[0], 300, 0.5)
    answer = answer_case(lm, case, max_new_tokens=4)
    heads = [*np.ndindex(*lm.shape)]
    found = attention_rows(lm, case, answer, heads)
    assert lm.model.config._attn_implementation == "sdpa"
    lm.model.set_attn_implementation("eager")
    for t in range(len(answer.tokens)):
        ids = [*case.input_ids, *answer.tokens[:t]]
        layers = lm.model(torch.tensor([ids]), output_attentions=True, use_cache=False).attentions
        for row, (layer, head) in zip(found[:, t], heads, strict=True):
            assert row[: len(ids)] == pytest.approx(layers[layer][0, head, -1].numpy(), abs=1e-5)
            assert not row[len(ids):].any()
