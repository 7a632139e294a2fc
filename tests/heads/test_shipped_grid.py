"""The large grid that ships with the project, and what the book claims of it."""

import shlex

import pytest

from rmutils.core.results import stored
from rmutils.heads import DetectConfig
from rmutils.heads.detection import detect_stored, even_depths

LENGTHS = (256, 512, 768, 1024, 1536, 2048, 3072, 4096)
LARGE = DetectConfig(lengths=LENGTHS, depths=even_depths(10))
SMALL = DetectConfig(lengths=(256,), depths=(0.0, 0.5, 1.0))
"""That of chapter 1, whose result is used where the book was built."""


@pytest.fixture(scope="module")
def large():
    return detect_stored("smollm2-135m", LARGE, compute="never")


def test_all_shipped_results_match_their_manifests():
    shipped = [artifact for artifact in stored() if artifact.shipped]
    assert shipped
    assert [problem for artifact in shipped for problem in artifact.problems()] == []


def test_the_grid_is_whole(large):
    scores, artifact = large
    assert len(scores.cases) == 12 * 8 * 10 == artifact.manifest["facts"]["cases"]
    assert len(scores.cases[["needle", "length", "depth"]].drop_duplicates()) == 960
    assert scores.cases["success"].sum() == len(scores.runs)
    assert (scores.cases["prompt_tokens"] <= scores.cases["length"]).all()
    assert scores.runs.min() >= 0 and scores.runs.max() <= 1  # a set overlap


def test_its_command_makes_it(large):
    """The command of the manifest, read back, names the same grid."""
    words = shlex.split(large[1].manifest["command"])
    assert words[:3] == ["rmutils", "detect", "smollm2-135m"]
    options = dict(zip(words[3::2], words[4::2], strict=True))
    again = DetectConfig(lengths=options["--lengths"].split(","),
                         depths=options["--depths"].split(","))
    assert again == LARGE


def test_the_small_grid_finds_the_top_heads(large):
    """At least 8 of the top 10, on this machine, now."""
    small, _ = detect_stored("smollm2-135m", SMALL)
    assert len({*small.select(top_k=10)} & {*large[0].select(top_k=10)}) >= 8
