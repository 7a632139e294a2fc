"""Sentences about trainings follow the intervals, and count them right."""

import math

import pandas as pd

from rmutils.book.chapters.training_sentences import (
    main_contrasts,
    reasoning_kinds,
    strengths,
)
from rmutils.book.verdicts import Effect


def table(*rows, **columns):
    frame = pd.DataFrame(rows, columns=["strategy", "effect", "low", "high"])
    return frame.assign(smallest_effect=1.25, p_holm=0.01, **columns)


def test_contrasts_are_counted_by_sign():
    less = {"m": table(("non-retrieval-mask", 2, 1, 3), ("sft", -2, -3, -1)),
            "n": table(("non-retrieval-mask", 0.5, -1.2, 1.5)), "o": pd.DataFrame()}
    gained = {"m": table(("retmask", 2, 1, 3), ("sft", 9, 8, 10)),
              "n": table(("retmask", 0, -1, 1))}
    room = {model: Effect(2.0, low, 4.0, "points", (), 50) for model, low in (("m", 1), ("n", -1))}
    first, second, third = main_contrasts(less, gained, room)
    assert "In 1 of 3 comparisons we cannot tell" in first
    assert "better in 1 and worse in 1**, with p corrected" in first
    assert "would be better in 1 and worse in 1." in first
    assert "in points: 2 [1,\u00a03] on `m` and 0.5 [-1.2,\u00a01.5] on `n` (" in second
    assert "in 1 of 2 models and lowers it in 0" in third
    assert "On `m`, all 1 other trainings raise it as well" in third and "On `n`" not in third
    assert "gain is shown: 2 [1,\u00a04] (p = " in third and "for 2 models" in third
    room["m"] = Effect(2.0, -0.1, 4.0, "points", (), 50)
    gained["m"] = table(("retmask", 2, 1, 3), ("sft", 0, -1, 1))
    third = main_contrasts(less, gained, room)[2]
    assert "0 of 1 other trainings" in third and "gain is undecided: 2.0 [-0.1" in third
    assert "room" not in main_contrasts(less, gained, {})[2]
    assert len(main_contrasts({}, gained, room)) == 1
    first, _, third = main_contrasts({"m": less["m"].assign(p_holm=[0.01, 0.2])},
                                     {"m": gained["m"].assign(p_holm=0.2)}, {})
    assert "In 1 of 2 comparisons" in first and "better in 1 and worse in 0**" in first
    assert "alone, it would be better in 1 and worse in 1." in first
    assert "raises the mean score in 0 of 1 models" in third  # an interval alone does not show it


def test_strengths_are_shares_of_the_means():
    sizes = pd.DataFrame([("retmask", 100, 10), ("retmask", 300, 30), ("random-mask", 100, 15)],
                         columns=["strategy", "pairs", "steps"])
    assert "on `m` 50% and 75% for Random-Mask." in strengths({"m": sizes, "n": sizes[:1]})
    assert "No training under other masks" in strengths({"m": sizes[:2]})


def test_whole_pairs_are_the_yardstick_of_shortened_ones():
    gained = table(("retmask", 1, 0.2, 1.8))
    less = table(("rc-removed", 2, 1, 3), ("rc-removed", 0, -1, 1), ("rc-un-generated", -2, -3, -1),
                 category=["Recall", "RAG", "Recall"], p=[0.01, 0.5, 0.016])
    first, second, third = reasoning_kinds(less, gained)
    assert "worse than whole pairs in 1 and better in 0 of 2 categories" in first
    assert "worse than whole pairs in 0 and better in 1 of 1 categories" in second
    assert second.endswith("corrected for these 3 comparisons.") and "alone" not in first + second
    assert "1.0 [0.2,\u00a01.8] after RetMask" in third
    # 0.02 becomes 0.06 by Holm's method over three comparisons, whatever the table's own p_holm
    first, second, _ = reasoning_kinds(less.assign(p=[0.02, 0.5, 0.5]), gained)
    assert "makes no detectable difference in any of 2 categories" in first
    assert "by the intervals alone, it would be worse in 1 and better in 0." in first


def test_categories_that_could_show_nothing_are_not_counted():
    less = table(("rc-removed", 2, 1, 3), ("rc-removed", 2, 1, 3), ("rc-removed", 2, 1, 3),
                 category=["Recall", "Re-rank", "Summ"], p=[0.5, 0.01, math.nan])
    first, _ = reasoning_kinds(less, table(("retmask", 1, 0.2, 1.8)), ["Re-rank"])
    assert "in any of 1 categories that could show one" in first and "worse in 1 and" in first
    assert "Left out: Re-rank, where the untrained" in first and "Summ, with too few" in first
    assert "In no category" in reasoning_kinds(less[1:], less, ["Re-rank"])[0]
