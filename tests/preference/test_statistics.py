"""Measures of pairs by hand, and against slow and obvious implementations."""

import random
from functools import cache

import numpy as np
import pandas as pd
import pytest

from rmutils.experiments.pair_statistics import (
    cut,
    describe,
    edit_distance,
    names,
    share_above,
    summarize,
)


def slow_distance(first, second) -> int:
    """Levenshtein's definition."""
    @cache
    def distance(i: int, j: int) -> int:
        if not (i and j):
            return i + j
        return min(distance(i - 1, j) + 1, distance(i, j - 1) + 1,
                   distance(i - 1, j - 1) + (first[i - 1] != second[j - 1]))

    return distance(len(first), len(second))


def test_edit_distance():
    draw = random.Random(0)
    for _ in range(200):
        first, second = ("".join(draw.choices("abcd", k=draw.randrange(9))) for _ in "12")
        assert edit_distance(first, second) == slow_distance(first, second), (first, second)
    assert edit_distance("kitten", "sitting") == 3


@pytest.mark.parametrize(("text", "found"), [
    ("Tell Anna Bo that I sold 3 cows for 1,250.50.", {"Anna", "Bo", "3", "1,250.50"}),
    ('Who is Anna? Read this: "Bo met Cem in 1280. Dora did not.\n\nEmil did."', {"Anna", "Cem",
                                                                                    "1280"}),
    ('Complete the sentence "Corara Hardal was taught by".', {"Corara", "Hardal"}),
    ("1. Ask NASA! 2) No", {"1", "NASA", "2", "No"}),
    ("what is a pigeon?", set()), ("", set()),
])
def test_names(text, found):
    assert names(text) == found


def pairs(*rows) -> pd.DataFrame:
    columns = ["prompt", "chosen", "rejected", "chosen_tokens", "rejected_tokens",
               "chosen_finished", "rejected_finished", "long"]
    return pd.DataFrame(rows, columns=columns)


def test_pairs_by_hand(llama):
    """The pairs' own counts, perhaps of another model's tokenizer, are not used."""
    table = pairs(("Greet Anna Bo.", "Hello, Anna Bo!", "Hello, Bo Bo and Cem!", 9, 40,
                   True, False, True), ("say yes", "Yes.", "No.", 3, 3, True, True, False))
    found = describe(llama, table)
    tokens = {column: [len(llama.tokenizer.tokenize(text)) for text in table[column]]
              for column in ("prompt", "chosen", "rejected")}
    assert found["input_tokens"].tolist() == tokens["prompt"]
    for side in ("chosen", "rejected"):
        assert found[f"{side}_tokens"].tolist() == tokens[side]
    assert found["length_difference"].tolist() == \
        [a - b for a, b in zip(tokens["chosen"], tokens["rejected"], strict=True)]
    # Hello , Anna Bo ! / Hello , Bo Bo and Cem !: one word replaced, two inserted, of seven
    assert found["edit_distance"].tolist() == pytest.approx([3 / 7, 1 / 2])
    assert found["chosen_names"].tolist() == pytest.approx([1, np.nan], nan_ok=True)
    assert found["rejected_names"].tolist() == pytest.approx([1 / 2, np.nan], nan_ok=True)
    assert found["names_difference"].tolist() == pytest.approx([1 / 2, np.nan], nan_ok=True)
    assert found["chosen_unfinished"].tolist() == [0, 0]
    assert found["rejected_unfinished"].tolist() == [1, 0]
    assert found["long"].tolist() == [1, 0]


def test_means_are_of_the_pairs_that_have_the_measure():
    """A constant has no width; a coin thrown 400 times is known to about 0.05."""
    values = pd.DataFrame({"constant": [2.0] * 400, "coin": [0.0, 1.0] * 200,
                           "some": [3.0] * 4 + [np.nan] * 396, "none": np.nan,
                           "one": [7.0] + [np.nan] * 399})
    found = summarize(values)
    assert found["pairs"].tolist() == [400, 400, 4, 0, 1]
    assert found.loc["constant", ["value", "low", "high"]].tolist() == [2, 2, 2]
    assert found.loc["some", ["value", "low", "high"]].tolist() == [3, 3, 3]
    assert found.loc["none", ["value", "low", "high"]].isna().all()
    assert found.loc["one", "value"] == 7 and found.loc["one", ["low", "high"]].isna().all()
    value, low, high = found.loc["coin", ["value", "low", "high"]]
    assert value == 0.5 and high - low == pytest.approx(2 * 1.96 * 0.5 / 20, rel=0.1)


def test_cuts_by_hand():
    encoded = {"prompt_ids": [[1] * 3] * 4, "chosen_ids": [[1] * n for n in (7, 8, 9, 10)],
               "rejected_ids": [[1]] * 4}
    found = cut(encoded, 10)
    assert found["chosen_cut"].tolist() == [0, 1, 1, 1]
    assert found["chosen_alone"].tolist() == [0, 0, 0, 1]
    assert not found[["rejected_cut", "rejected_alone"]].any(axis=None)


def test_what_a_mean_tells_of_the_share_above():
    """By hand, and true of random lengths; both ends are reached by the lengths of the docstring.
    """
    assert share_above(15, 10, 20) == (0.5, 1)
    assert share_above(4, 10, 20) == (0, 0.4)
    draw = np.random.default_rng(0)
    for _ in range(500):
        lengths = draw.integers(0, draw.integers(11, 100), size=20)
        low, high = share_above(lengths.mean(), 10, max(lengths.max(), 11))
        assert low <= (lengths > 10).mean() <= high
