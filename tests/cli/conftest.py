"""Head scores in a file, for the commands that mask heads; commands that are refused."""

import numpy as np
import pytest

from rmutils.heads import HeadScores


@pytest.fixture
def scores(tmp_path) -> str:
    """0.3, 0.08 and 0.04 for the heads 3-1, 0-2 and 1-0 of 4 x 4, and zero for the others."""
    runs = np.zeros((1, 4, 4))
    for head, score in (((3, 1), 0.3), ((0, 2), 0.08), ((1, 0), 0.04)):
        runs[0][head] = score
    HeadScores(runs, "any").to_wu_json(tmp_path / "scores.json")
    return str(tmp_path / "scores.json")


def assert_refused(rmutils, cases: dict[tuple, str]) -> None:
    """Each of these words exits with 2, its message alone on stderr."""
    for words, message in cases.items():
        done = rmutils(*words)
        assert done.exit_code == 2, (words, done.output)
        assert done.stderr.startswith("rmutils: ") and message in done.stderr, done.stderr
        assert done.stdout == "" and "Traceback" not in done.output
