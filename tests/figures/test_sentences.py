"""A computed sentence follows its numbers: with other results it says something else."""

import numpy as np
import pandas as pd

from rmutils.book.chapters import sentences
from rmutils.book.figures import report
from rmutils.stats import Interval


def test_a_difference_within_rounding_has_no_sign():
    """Means of the same numbers in another order differ by -4e-16: no sign of a direction."""
    none = -4.4e-16
    assert report.by_sign(Interval(none, none, none), "above", "below", "open") == "open"
    assert report.by_sign(Interval(-1e-3, -1e-3, -1e-3), "above", "below", "open") == "below"


def test_models_with_needles_left_to_find_are_named():
    told = sentences.little_left({"a": 1.0, "b": 0.9, "c": 0.855, "d": 0.32})
    assert told.startswith("2 of 4 find at least 90% of the needles")
    assert told.endswith("; not so c (86%) and d (32%).")
    assert "not so" not in sentences.little_left({"a": 0.9})
    assert sentences.little_left({"a": 0.1}).startswith("none of 1 ")


def test_what_is_missing_from_the_plan_is_said():
    said = sentences.missing_from_plan("02_masking_sweep", "tiny-llama", 1)
    assert said == " Of the 3 layer-matched draws that were planned for tiny-llama, 1 is stored."
    for model, draws in (("tiny-llama", 3), ("my-model", 0)):
        assert not sentences.missing_from_plan("02_masking_sweep", model, draws)


def test_pairs_are_compared_on_the_same_instructions():
    rng = np.random.default_rng(0)
    own = pd.DataFrame({"names_difference": rng.normal(0.3, 0.05, 60),
                        "gap_mean": rng.normal(0.3, 0.05, 60)})
    equal = own + np.resize([0.05, -0.05], (60, 1))
    fewer, larger = own - 0.2, own.assign(gap_mean=own["gap_mean"] + 0.6)

    def leads(**controls):
        said = sentences.pairs_beside_controls("m", own, {k: [v] for k, v in controls.items()})
        return [line.split("**")[1] for line in said.splitlines() if line.startswith("- ")]

    assert leads(A=fewer) == ["names: as expected", "likelihood: as expected"]
    assert leads(A=equal) == ["names: not what we expected", "likelihood: not what we expected"]
    assert leads(A=fewer, B=equal)[0] == "names: only in part as expected"
    assert leads(A=larger)[1] == "likelihood: the contrary of what we expected"
    elsewhere = fewer.set_axis(range(100, 160))
    assert leads(A=elsewhere) == []
    told = sentences.names_beyond_controls("m", own, {"A": [fewer, fewer], "B": [elsewhere]})
    assert "lose more names than those of A (20 [" in told and told.endswith("of 100, 2 draws).")
    told = sentences.names_beyond_controls("m", own, {"A": [fewer], "B": [equal]}, displaced=2)
    assert ", but no measurably other number than those of B (" in told and "2 of these" in told
