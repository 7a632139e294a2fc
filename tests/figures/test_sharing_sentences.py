"""Sentences about sharing and selecting follow the numbers, whichever way they point."""

from types import SimpleNamespace

import pandas as pd

from rmutils.book.chapters.share_attention.sentences import (
    beginnings,
    by_layer,
    nearest_heads,
    prompt_time,
    sharing_layer,
    took,
)
from rmutils.stats import Interval


def test_a_layer_that_cannot_share_is_named():
    each = pd.DataFrame([(v, q, 0.0, float(v != "0")) for v in ("plain", "0", "5")
                         for q in range(4)], columns=["variant", "question", "place", "correct"])
    told = sharing_layer(each, "m", 30)
    assert told.startswith("**A single layer can cost half of the needles or more.**")
    assert "finds 0 of 4 answers (layer 0 of 30); in 1 of the 2 layers" in told
    spared = sharing_layer(each.assign(correct=1.0), "m", 30)
    assert spared.startswith("**No single layer")
    assert "at least half as many; in 2 of the 2" in spared
    said = each.assign(response=["x y z"] * 4 + ["q"] * 4 + ["x y z a"] * 4)
    assert "if heads share in layer 0 (0%); otherwise in 100% to 100%" in beginnings(said, "m")


def test_halves_are_told_with_and_without_their_worst_layer():
    """Layer 0 loses all, layers 1 and 3 a third of three needles."""
    lost = {"plain": 0, "0": 3, "1": 1, "2": 0, "3": 1}
    table = pd.DataFrame([(name, 9, q, 0.0, float(q >= count)) for name, count in lost.items()
                          for q in range(3)],
                         columns=["variant", "length", "question", "place", "correct"])
    said = by_layer(table, "m", 4)
    assert "found, on average, by -0.67 in the first half and -0.17 in the second half." in said
    assert "Layer 0 alone changes it by -1.00; without it the first half is at -0.33." in said
    assert "With three needles no p can be below 0.25" in said
    turned = by_layer(table.replace({"variant": {"0": "3", "3": "0"}}), "m", 4, "questions")
    assert "Layer 3 alone" in turned and "the second half is at 0.00" in turned
    assert "share of questions answered" in turned


def test_time_is_that_of_the_manifests():
    runs = [SimpleNamespace(manifest={"seconds": 90}), SimpleNamespace(manifest={"seconds": 150})]
    assert took(runs, []) == "The 2 planned runs took 4 minutes in all."
    assert took(runs, runs).endswith("in all, the other measurements of the larger model 4.")


def test_heads_within_the_threshold_or_the_nearest_two():
    assert "heads 1, 4 lie within" in nearest_heads([1, 4], 0.1, 3, "m", 0.18)
    assert "no two heads lie within" in nearest_heads([1, 4], 0.19, 3, "m", 0.18)


def test_time_is_saved_only_against_what_takes_longer():
    less, more, open_ = Interval(0.7, 0.6, 0.8), Interval(1.3, 1.2, 1.4), Interval(1, 0.9, 1.1)
    assert "but slower than the fused kernel" in prompt_time(less, more, "m", 0.5)
    assert "but not shown to be faster than the fused" in prompt_time(less, open_, "m", 0.5)
    assert prompt_time(less, less, "m", 0.5).startswith("**Sharing saves time.**")
    assert prompt_time(more, less, "m", 0.5).startswith("**No time is shown")
