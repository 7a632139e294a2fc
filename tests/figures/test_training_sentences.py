"""Sentences about trainings follow the intervals, and count them right."""

import math

import pandas as pd

from rmutils.book.chapters.training_sentences import (
    abilities_kept,
    copied_and_known,
    drift_beside_others,
    main_contrasts,
    other_trainings,
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


def test_a_change_is_named_only_if_its_interval_excludes_zero():
    changed = {"m": table(("retmask", -2, -3, -1), ("sft", 2, 1, 3)),
               "n": table(("retmask", 0.5, -1, 2)), "o": table(("sft", 0, -1, 1))}
    first, second = abilities_kept(changed)
    assert "falls in 1 of 2 models and rises in 0**: on `m` by -2 [" in first and "`o`" not in first
    assert "by 0.5 points; the smallest detectable change is 1.2 points" in first
    assert "intervals of 1 other trainings, 1 lie above zero and 0 below" in second
    worse = table(("retmask", 0.5, -1, 2), ("sft", -2, -3, -1))
    assert abilities_kept({"m": worse})[1].endswith("a loss is shown for SFT on `m`.")
    first, _ = abilities_kept({"m": changed["m"].assign(p_holm=0.2)})
    assert "no loss is shown in any of 1 models**" in first
    assert "The mean changes by -2 points" in first


def test_other_trainings_differ_by_interval_and_corrected_p():
    less = {"m": table(("sft", 7, 5, 9), ("random-mask", 2, 1, 3), seeds=1),
            "n": table(("sft", 1, -1, 3), ("random-mask", -2, -3, -1), seeds=5)}
    less["m"]["p_holm"] = [0.0003, 0.06]
    said = other_trainings(less)
    assert "4 other trainings" in said
    assert "higher than after one and lower than after one.**" in said
    assert ("On `m` RetMask differs by 7 [5,\u00a09] points from SFT (p of at most 0.0003 after "
            "correction, one training of each)." in said)
    assert said.endswith("from Random-Mask (p of at most 0.01 after correction).")
    assert "On `" not in other_trainings({"m": less["m"][1:]})


def test_copied_answers_and_needles_may_part():
    def needles(value):
        return Effect(value, value - 0.05, value + 0.05, "share", (), 20)

    changed = {"copied": {"m": table(("retmask", 6, 2, 9), ("sft", -5, -6, -4)),
                          "n": table(("retmask", 5, 1, 9)).assign(p_holm=0.06),
                          "o": table(("sft", 5, 1, 9))},
               "by heart": {"m": table(("retmask", -6, -9, -2))}}
    said = copied_and_known(changed, {"m": needles(-0.09), "n": needles(-0.09)})
    assert "Copied: " in said and "a gain is shown on `m`." in said and "`o`" not in said
    assert said.count("the other way: by -9 [-14,\u00a0-4] points") == 1
    assert said.endswith("a loss is shown on `m`.")
    assert "other way" not in copied_and_known(changed, {"m": needles(0.09)})
    assert "no change is shown." in copied_and_known({"copied": {"n": changed["copied"]["n"]}}, {})
    assert copied_and_known({"copied": {"o": changed["copied"]["o"]}}, {}) == ""


def test_drift_is_told_from_the_range_of_others():
    def rows(model, low, high):
        own = ("retmask", (low + high) / 2, low, high)
        return pd.DataFrame([own, ("sft", 0.2, 0.1, 0.3), ("random-mask", 0.4, 0.3, 0.5)],
                            columns=["strategy", "value", "low", "high"]).assign(model=model)

    said = drift_beside_others(pd.concat([rows("m", 0.04, 0.08), rows("n", 0.04, 0.12),
                                          rows("o", 0.52, 0.6)]))
    assert said == ("RetMask drifts less than every other training on `m` (0.06; others 0.2 to "
                    "0.4), more than every other training on `o` (0.56; others 0.2 to 0.4) and "
                    "within their range on `n` (0.08; others 0.2 to 0.4).")
    assert drift_beside_others(rows("m", 0, 1)[1:]) == ""
