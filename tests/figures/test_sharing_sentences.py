"""Sentences about sharing and selecting follow the numbers, whichever way they point."""

from types import SimpleNamespace

import pandas as pd

from rmutils.attention.select_attention import Select
from rmutils.book.chapters.retrieval_heads_under_change.experiment import needles_found
from rmutils.book.chapters.share_attention.sentences import (
    beginnings,
    both_at_once,
    by_layer,
    each_step_elsewhere,
    gpu_cost,
    layers_agree,
    nearest_heads,
    prompt_or_steps,
    prompt_time,
    sharing_layer,
    took,
)
from rmutils.book.claims.plots import companion_claims
from rmutils.book.experiments.run_costs import roofline
from rmutils.core.results import read_tables, stored
from rmutils.stats import Interval


def test_choosing_once_is_compared_with_choosing_at_each_step():
    table = pd.DataFrame([{"layer": 1, "p": p, "question": q, "prompt": 0.0, "next": 0.9,
                           "prompt_kept": 0.1, "answer_kept": 0.3}
                          for p in (0.9, 0.97, 0.99) for q in range(6)])
    told = prompt_or_steps(table, "m", 1, 0.97)
    assert told.startswith("**In m, tokens chosen once, from the prompt, miss the needle;")
    assert "p of 0.9 to 0.97" in told and "0.99" not in told
    assert "0% of the needle's tokens in layer 1 of `m`, though 10% of all (6 needles)" in told
    other = prompt_or_steps(table.assign(prompt=1.0), "m", 1, 0.97)
    assert other.startswith("**In m, choosing once, from the prompt, holds more")
    half = prompt_or_steps(table.assign(prompt=table["question"] % 2), "m", 1, 0.97)
    assert half.startswith("**It is not shown that in m")


def test_needles_of_models_that_select_at_each_step():
    """The stored measurement of chapter 15 with most needles, counted by hand from its cases."""
    found = needles_found(Select(filter_layer=1, p=0.99)).set_index("model")
    assert [*found.index] == ["tiny-llama", "tiny-olmo3", "tiny-qwen3"]
    artifact, = (one for one in stored("variant-heads") if one.model == "tiny-qwen3"
                 and one.manifest["config"]["needles"]["needles"] == 20)
    needles = read_tables(artifact.folder)["needles"]
    right = needles[(needles["subject"] == "whole") & (needles["variant"] == "Select 0.99")]
    assert found.loc["tiny-qwen3", ["found", "asked"]].tolist() == [
        right["correct"].sum(), len(right)]
    told = each_step_elsewhere(found.reset_index(), 1, 0.99)
    assert f"tiny-qwen3 finds {right['correct'].sum():.0f} of {len(right)} needles instead" in told
    assert needles_found(Select(filter_layer=1, p=0.12345)).empty
    assert each_step_elsewhere(found.iloc[:0], 1, 0.99) == ""


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


def test_both_at_once_by_the_plans_rule():
    """Against four fifths counted by hand: of 20 needles the plain model finds 10."""
    def told(both):
        counts = {"plain": 10, "share": 9, "select": 8, "both": both}
        return both_at_once(pd.DataFrame([
            (name, 256, q, 0.5, q < n, 0.1) for name, n in counts.items() for q in range(20)],
            columns=["variant", "length", "question", "place", "correct", "kept"]), "m", 0.7, 0.95)

    assert told(20).startswith("**Sharing and selecting at once keep four fifths")
    assert told(0).startswith("**Sharing and selecting at once lose more than a fifth")
    open_ = told(8)
    assert open_.startswith("**Whether") and "change is -10 [" in open_
    assert "finds 10 as it is, 9 with 70.0% of the heads computing, 8 with tokens" in open_


def test_time_is_saved_only_against_what_takes_longer():
    less, more, open_ = Interval(0.7, 0.6, 0.8), Interval(1.3, 1.2, 1.4), Interval(1, 0.9, 1.1)
    assert "but slower than the fused kernel" in prompt_time(less, more, "m", 0.5)
    assert "but not shown to be faster than the fused" in prompt_time(less, open_, "m", 0.5)
    assert prompt_time(less, less, "m", 0.5).startswith("**Sharing saves time.**")
    assert prompt_time(more, less, "m", 0.5).startswith("**No time is shown")


def test_agreement_and_bytes():
    overlap = pd.DataFrame([(q, s, c) for q in range(3) for s, c in ((1, 0.8), (64, 0.5))],
                           columns=["question", "steps", "common"])
    pairs = {"early": Interval(0.2, 0.1, 0.3), "later": Interval(0.6, 0.5, 0.7),
             "difference": Interval(0.4, 0.3, 0.5)}
    assert "**Later layers agree on tokens more" in layers_agree(pairs, overlap, "m", 14)
    pairs["difference"] = Interval(-0.4, -0.5, -0.3)
    assert "**Early layers agree" in layers_agree(pairs, overlap, "m", 14)
    assert "Fewer bytes are not less time" in gpu_cost(roofline([32_000], [0.1]))
    assert "saves time" in gpu_cost(roofline([1_000], [0.1]))


def test_claims_of_the_companion_texts_are_answered_from_what_ships():
    table = companion_claims()
    assert set(table["chapter"]) == {11, 12, 13, 14}
    assert table.query("chapter > 11")["place"].str.contains("Section").all()
    assert not table["here"].str.contains("Not stored|[*`]").any()
