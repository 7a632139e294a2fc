"""The same GGUF file, read by other people's code."""

import math

import numpy as np
import pytest

from benchmarks import llama_cpp
from benchmarks.measuring import OTHERS
from benchmarks.records import Results
from tests.faults.table import LONG


def test_agreement_by_hand():
    """At one of two positions the same token; the divergence of two tokens, of 1/2 and of 3/4."""
    ours, theirs = np.log([[3, 1], [1, 1.1]]), np.log([[3, 1], [3, 1]])
    found = llama_cpp.agreement(ours, theirs)
    p = 1 / 2.1
    nats = p * math.log(p / 0.75) + (1 - p) * math.log((1 - p) / 0.25)
    assert (found["positions"], found["top"]) == (2, 0.5)
    assert found["kl"] == pytest.approx(nats / 2) and found["kl_most"] == pytest.approx(nats)


@pytest.mark.skipif(not (LONG and OTHERS.exists()),
                    reason="takes a minute, after `make bench`: RMUTILS_FAULTS=long")
def test_llama_cpp_reads_the_same(tmp_path):
    """It rounds activations to eight bits, so numbers differ a little, and now and then a token;
    of the same weights as float32 it rounds nothing."""
    settings = llama_cpp.Settings(**llama_cpp.QUICK)
    assert llama_cpp.measure(settings, tmp_path)
    found = {row["what"]: row for row in Results("llama_cpp", settings, tmp_path).rows}
    assert found["agreement"]["top"] >= 0.95 and found["agreement"]["kl"] < 0.02
    assert len({*found["answers"]["found"]}) == 1
    assert found["exact"]["top"] == 1 and found["exact"]["kl"] < 1e-5
