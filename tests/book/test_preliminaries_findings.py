"""The first chapter's findings, by hand."""

import numpy as np
import pandas as pd
import pytest

from rmutils.book.chapters.preliminaries import findings as preliminaries
from rmutils.book.findings import finding
from rmutils.heads import HeadScores


def scores(short: float, long: float) -> HeadScores:
    """Head 0-0 has these means at 256 and 512 tokens, head 0-1 always 0.6; eight needles each."""
    cases = pd.DataFrame({"needle": [*range(8)] * 2, "length": [256] * 8 + [512] * 8,
                          "success": True})
    runs = np.zeros((16, 1, 3))
    runs[:8, 0, 0], runs[8:, 0, 0] = short, long
    runs[:, 0, 1] = 0.6
    return HeadScores(runs, "m", cases["needle"].to_numpy(), cases)


@pytest.mark.parametrize("long, fall, verdict", [
    (0.5, 40, "shown"), (0.9, 0, "undecided")])
def test_the_leader_falls_where_its_scores_do(long, fall, verdict):
    found = finding("leader-falls-with-length", scores(0.9, long), "detect/m")
    assert found.value == pytest.approx(fall) and found.verdict == verdict


def test_needles_that_no_prompt_of_a_length_found_do_not_count():
    found = scores(0.9, 0.5)
    missed = found.cases.tail(1).assign(length=1024, success=False)
    longer = HeadScores(found.runs, "m", found.clusters,
                        pd.concat([found.cases, missed], ignore_index=True))
    assert finding("leader-falls-with-length", longer, "detect/m").value == pytest.approx(40)


def test_heads_are_counted():
    found = scores(0.9, 0.5)
    assert finding("heads-that-reach", found, 0.5, "detect/m").value == 2
    assert finding("heads-that-never-copy", found, "detect/m").value == pytest.approx(100 / 3)
    assert f"{finding('head-copies', found, (0, 1), 'detect/m'):plain}" == "60"
    assert preliminaries.at_length(found, 512).mean[0, 0] == pytest.approx(0.5)
