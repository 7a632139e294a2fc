"""Measures of pairs by hand, and against slow and obvious implementations."""

import random
from functools import cache
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from rmutils.book.chapters.data_and_training import findings
from rmutils.book.chapters.data_and_training.pair_statistics import (
    MatchedConfig,
    cut,
    describe,
    difference_on_same,
    edit_distance,
    matched_pairs_stored,
    names,
    names_difference,
    share_above,
    summarize,
)
from rmutils.core.errors import NotStored
from rmutils.heads.masking import draw_layer_matched
from rmutils.pipeline.retmask import RetMaskConfig
from rmutils.preference.instructions import Instruction
from rmutils.preference.responses import Transformers, respond


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


def test_differences_are_on_the_same_instructions():
    """Instruction 9 is in one table only, and 2 lacks a value; 0 and 1 are left."""
    own = pd.Series([0.5, 0.7, 0.9, 0.1], [0, 1, 2, 9], name="names_difference")
    draws = [pd.Series([0.1, 0.3, np.nan], [0, 1, 2]), pd.Series([0.3, 0.5, 0.2], [0, 1, 2])]
    first, second, less = difference_on_same(own, draws)
    assert [first.value, second.value, less.value] == pytest.approx([0.6, 0.3, 0.3])
    assert less.low < 0.3 < less.high  # the draws differ
    assert difference_on_same(own, [pd.Series([0.1], [0])]) is None


def test_layer_matched_pairs_keep_the_chosen_responses(cache, llama):
    config = RetMaskConfig().changed({"responses.max_new_tokens": 6})
    asked = [Instruction.of(f"Where is town {i}?") for i in range(3)]
    table = pd.DataFrame({
        "id": [i.id for i in asked], "prompt": [i.text for i in asked], "chosen": "In a valley.",
        "chosen_tokens": 4, "chosen_finished": True})
    run = SimpleNamespace(pairs=table, heads=[(0, 1), (2, 0)], artifact=SimpleNamespace(
        manifest={"config": config.identity()}, key="retmask-1"))
    made, artifact = matched_pairs_stored(
        llama, run, MatchedConfig(pairs=2, seed=5), command="made by hand")
    heads = draw_layer_matched(llama.shape, run.heads, exclude=run.heads, seed=5)
    said = respond(Transformers(llama), asked[:2], config.responses.changed({"heads": heads}))
    assert [layer for layer, _ in heads] == [0, 2] and not {*heads} & {*run.heads}
    assert made["rejected"].tolist() == said["text"].tolist()
    assert made["chosen"].tolist() == ["In a valley."] * 2
    assert artifact.manifest["facts"] == {"pairs": 2}


def test_pairs_are_compared_on_the_same_instructions_in_percent_of_names():
    rng = np.random.default_rng(0)
    own = pd.DataFrame({"names_difference": rng.normal(0.3, 0.05, 60),
                        "gap_mean": rng.normal(0.3, 0.05, 60)})
    less = findings.pairs_beyond(own, [own - 0.2, own - 0.3], "names_difference", "m", "others")
    assert less.found.value == pytest.approx(25)
    alike = findings.pairs_beyond(own, [own - 0.2], "gap_mean", "m", "others")
    assert alike.found.value == pytest.approx(0.2)
    elsewhere = own.set_axis(range(100, 160))
    for others in ([], [elsewhere]):
        with pytest.raises(NotStored):
            findings.pairs_beyond(own, others, "gap_mean", "m", "others")


def test_names_lost_by_hand():
    pairs = pd.DataFrame({
        "id": [7, 8], "prompt": ["Greet Ada Lovelace in 1843.", "say something kind"],
        "chosen": ["Hello, Ada Lovelace!", "Well done."], "rejected": ["Hello!", "Well."]})
    lost = names_difference(pairs)
    assert lost[7] == pytest.approx(2 / 3) and np.isnan(lost[8])
