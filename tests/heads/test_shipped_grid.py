"""The large grid that ships with the project, and what the book claims of it."""


import numpy as np
import pytest

from rmutils.core.results import stored
from rmutils.heads import DetectConfig, detect
from rmutils.heads.detection import detect_stored, even_depths

LENGTHS = (256, 512, 768, 1024, 1536, 2048, 3072, 4096)
LARGE = DetectConfig(lengths=LENGTHS, depths=even_depths(10))


@pytest.fixture(scope="module")
def large():
    return detect_stored("smollm2-135m", LARGE, compute="never")


def test_all_shipped_results_match_their_manifests():
    shipped = [artifact for artifact in stored() if artifact.shipped]
    assert shipped
    assert [problem for artifact in shipped for problem in artifact.problems()] == []


def test_some_of_its_cases_come_out_again(large, smollm):
    """On this machine, now: the same needles are found, and the same heads copy."""
    again = detect(smollm, DetectConfig(lengths=(256,), depths=(0.0, 1.0), needles=1))
    cases = large[0].cases
    same = large[0].where(cases["case"].isin(again.cases["case"]).to_numpy())
    assert again.cases["case"].tolist() == same.cases["case"].tolist()
    assert again.cases["success"].tolist() == same.cases["success"].tolist()
    np.testing.assert_allclose(again.runs, same.runs, atol=0.1)
    assert (again.runs != same.runs).mean() < 0.01
