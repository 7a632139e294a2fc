"""Sentences about trainings follow the intervals, and count them right."""

import pandas as pd

from rmutils.figures.training_sentences import (
    abilities_kept,
    main_contrasts,
    masked_heads,
    reasoning_kinds,
)
from rmutils.paper.verdicts import Effect


def table(*rows, **columns):
    frame = pd.DataFrame(rows, columns=["strategy", "effect", "low", "high"])
    return frame.assign(smallest_effect=1.25, p_holm=0.01, **columns)


def test_contrasts_are_counted_by_sign():
    less = {"m": table(("non-retrieval-mask", 2, 1, 3), ("sft", -2, -3, -1)),
            "n": table(("non-retrieval-mask", 0.5, -1.2, 1.5)), "o": pd.DataFrame()}
    gained = {"m": table(("retmask", 2, 1, 3), ("sft", 9, 8, 10)),
              "n": table(("retmask", 0, -1, 1))}
    first, second, third = main_contrasts(less, gained)
    assert "in 1 of 3 comparisons, and less in 1**; the other 1" in first
    assert "2 [1,\u00a03] on `m` and 0.5 [-1.2,\u00a01.5] on `n` points" in second
    assert "in 1 of 2 models and lowers it in 0" in third and "9" not in third
    assert len(main_contrasts({}, gained)) == 1


def test_whole_pairs_are_the_yardstick_of_shortened_ones():
    less = table(("rc-removed", 2, 1, 3), ("rc-removed", 0, -1, 1), ("rc-un-generated", -2, -3, -1))
    first, second = reasoning_kinds(less, table(("retmask", 1, 0.2, 1.8)))
    assert "RC removed does worse in 1 and better in 0 of 2 categories" in first
    assert "does worse in 0 and better in 1 of 1 categories" in first
    assert "1.0 [0.2,\u00a01.8] after RetMask" in second


def test_a_change_is_named_only_if_its_interval_excludes_zero():
    changed = {"m": table(("retmask", -2, -3, -1), ("sft", 2, 1, 3)),
               "n": table(("retmask", 0.5, -1, 2)), "o": table(("sft", 0, -1, 1))}
    first, second, third = abilities_kept(changed)
    assert "falls in 1 of 2 models and rises in 0**: on `m` by -2 [" in first and "`o`" not in first
    assert "by 0.5 points; the smallest detectable change there is 1.2 points" in second
    assert "intervals of 1 other trainings, 1 lie above zero and 0 below" in third
    first, second, _ = abilities_kept({"m": changed["m"].assign(p_holm=0.2)})
    assert "falls in 0 of 1 models and rises in 0**." in first and "by -2 points" in second


def test_masked_heads_rise_only_above_zero():
    def effect(value, half):
        return Effect(value, value - half, value + half, "score", (), 12, "one training")

    effects = {"retmask": effect(0.015, 0.004), "sft": effect(0, 0.003)}
    first, second, third = masked_heads("m", effects, {"n": effect(-0.002, 0.008)})
    assert "of `m` rise**: by 15 [11,\u00a019]" in first.replace(".0", "") and "12 needles" in first
    assert "0 [-3,\u00a03] after SFT" in second.replace(".0", "") and "(`n`)" in third
    assert "do not measurably change" in masked_heads(
        "m", effects | {"retmask": effect(0.001, 0.004)}, {"n": effect(0, 1)})[0]
