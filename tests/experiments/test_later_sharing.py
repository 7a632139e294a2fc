"""Alike heads against random ones: shares, differences and the plan's rule by hand."""

import pandas as pd
import pytest

from rmutils.book.chapters.share_attention.later_sharing import (
    LaterConfig,
    compare_arms,
    later_sharing,
    planned,
    primary,
    shown_by,
)
from rmutils.book.chapters.share_attention.sentences import alike_or_random, place_matters, unread
from rmutils.book.experiments.under_variants import TextsConfig
from rmutils.core.experiment import Plan, load_plan
from rmutils.heads.detection import DetectConfig
from rmutils.models import load_model


def needles(alike, random, model="m", rate=0.7):
    """Needles found of 20, one case each; two draws that find the same."""
    return pd.concat([pd.DataFrame({
        "model": model, "rate": rate, "arm": arm, "draw": draw, "question": range(20), "place": 0.5,
        "correct": [float(i < count) for i in range(20)]})
        for arm, draw, count in (("plain", 0, 20), ("alike", 0, alike), ("random", 1, random),
                                 ("random", 2, random))], ignore_index=True)


def test_the_rule_of_the_plan():
    table = pd.concat([needles(18, 2, "m"), needles(17, 3, "m", 0.8), needles(2, 18, "n"),
                       needles(10, 10, "o"), needles(20, 20, "p"), needles(1, 20, "q", 0.9)])
    plan = Plan("p", "d", {"kept": dict.fromkeys("mnopq", [0.7, 0.8, 0.9])})
    found = primary(table, plan)
    assert set(found["rate"]) == {0.7, 0.8}
    assert found["p_holm"].min() == pytest.approx(10 * found["p"].min())  # 5 models, 2 rates
    row = found.set_index(["model", "rate"]).loc[("m", 0.7)]
    assert (row["share"], row["share_base"], row["effect"]) == (0.9, 0.1, pytest.approx(0.8))
    assert row["low"] > 0.5 and row["p_holm"] < 0.01 and row["needles"] == 20
    assert row["draws"] == 2 and row["draws_above"] == 0
    assert shown_by(found).to_dict() == {"m": 1, "n": -1, "o": 0, "p": 0}
    assert not compare_arms(table).set_index("model").loc["p", "readable"]
    told = alike_or_random(found, 0)
    assert "**On `m` sharing costs fewer" in told and "largest on `m`: with 70% of its" in told
    assert "finds 90% of the needles if alike heads share and 10% if random ones do" in told
    assert "On `n` random heads" in told
    assert "of their draws, 2 of 2 (`n` at 70.0%) find more than alike heads." in told
    assert f"the lowest begins at {100 * found['low'].min():.2g} points (`n`)." in told
    told = alike_or_random(found, 3)
    assert told.startswith("**") and "that are missing: 3." in told
    assert "`p` at 70.0%" in unread(found)


def test_draws_that_beat_alike_heads_are_counted():
    """The mean of two draws lies below alike heads, and one draw above them."""
    better, worse = needles(10, 14), needles(10, 2)
    table = pd.concat([better.query("draw < 2"), worse.query("draw == 2")])
    row, = compare_arms(table).itertuples()
    assert row.effect > 0 and (row.draws_above, row.draws) == (1, 2)
    plan = Plan("p", "d", {"kept": {"m": [0.7, 0.8]}})
    assert "1 of 2 (`m` at 70.0%) find more" in alike_or_random(primary(table, plan), 0)
    assert "no draw of them finds more" in alike_or_random(primary(worse, plan), 0)


def test_the_place_is_told_from_alike_heads_in_other_layers():
    """`m` needs its later layers, `n` does not, and in `o` both ways are at the ceiling."""
    table = pd.concat([needles(18, 2, "m"), needles(10, 10, "n"), needles(20, 20, "o")])
    table = pd.concat([table, table.query("arm == 'random' and draw == 1").assign(
        arm="one threshold", draw=0)])
    said = place_matters(compare_arms(table, base="one threshold"),
                         compare_arms(table, "one threshold"))
    assert said.startswith("**Where alike heads share matters in 1 of 3 models.**")
    assert "in one, and fewer in none; the differences are 80 [" in said
    assert "better than random heads in later ones in none and worse in none" in said
    assert said.count("Not read, because both arms are at the floor or at the ceiling: `o`") == 2
    worse = place_matters(compare_arms(table, "one threshold", "alike"),
                          compare_arms(table, "random", "alike"))
    assert "in none, and fewer in one" in worse and "in none and worse in one" in worse


def test_arms_share_where_they_should():
    lm = load_model("tiny-llama")
    found = later_sharing(lm, LaterConfig(
        kept=0.8, layers=(2, 3), draws=(1, 2), prompts=1, tokens=200,
        needles=DetectConfig(lengths=(160,), depths=(0.5,), needles=2, max_new_tokens=8),
        texts=TextsConfig(count=1)))
    arms = found["arms"].set_index("arm")
    assert (arms["retention"] <= 0.8).all() and (arms["retention"] > 0.7).all()
    assert arms.loc["one threshold", "threshold"] < arms.loc["alike", "threshold"]
    kept = found["needles"].groupby(["arm", "draw"])["kept"].first()
    assert kept["plain", 0] == 1
    assert kept["random", 1] == kept["random", 2] == kept["alike", 0] == arms.loc[
        "alike", "retention"]
    assert set(found["texts"]["arm"]) == {"plain", "alike", "random", "one threshold"}


def test_the_plan_has_as_many_needles_and_draws_as_it_says():
    configs = [*planned(load_plan("later_sharing"))]
    assert len(configs) == 11 and configs[0][0] == "smollm2-135m"
    assert all(one.needles.needles == 20 and len(one.draws) == 5 for _, one in configs)
