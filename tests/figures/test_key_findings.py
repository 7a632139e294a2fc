"""The findings of the first page: those of the README, and each as a count by hand has it."""

import math

import pandas as pd
import pytest

from rmutils.book.chapters.masking_sweep.experiment import SweepConfig, scored, sweep_stored
from rmutils.book.claims import plots as claims_figures
from rmutils.book.claims.claim_list import Measure, Part
from rmutils.book.claims.effects.masking_effects import needles_lost_beyond_others
from rmutils.book.experiments import needles_left
from rmutils.book.experiments.sweep_questions import HAYSTACK
from rmutils.book.verdicts import Effect, PartVerdict
from rmutils.core.paths import ROOT
from rmutils.models.known_models import tau_of
from rmutils.stats import Interval


def test_the_readme_has_the_findings_of_the_first_page():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for finding in claims_figures.key_findings():
        assert "- " + finding.replace("\u00a0", " ") + "\n" in text, finding


def test_what_masking_costs_as_counted_by_hand():
    scores, _ = scored("smollm2-135m", compute="never")
    swept, _ = sweep_stored("smollm2-135m", scores, SweepConfig(counts=(4, 8, 16, 64)),
                            compute="never")
    count = int((scores.mean >= tau_of("smollm2-135m")).sum())
    rows = swept.answers[(swept.answers["task"] == HAYSTACK) & (swept.answers["count"] == count)]
    right = rows.groupby(["policy", "draw"])["correct"].mean().groupby("policy").mean()
    more = 100 * (right["non-retrieval"] - right["retrieval"])
    lost = needles_lost_beyond_others("smollm2-135m")
    told = claims_figures.few_heads(lost, scores, {"smollm2-135m": lost})
    assert f"Without {count} of SmolLM2's 270" in told and f"misses {more:.0f} [" in told


@pytest.mark.parametrize("low, high, said", [
    (0.1, 0.3, "**A few heads find"), (-0.1, 0.3, "**Whether a few"),
    (-0.3, -0.1, "find no facts")])
def test_the_interval_decides_what_is_said_of_the_heads(low, high, said):
    scores, _ = scored("smollm2-135m", compute="never")
    lost = Effect((low + high) / 2, low, high, "share", (), 12)
    assert said in claims_figures.few_heads(lost, scores, {"smollm2-135m": lost})


def test_others_of_the_same_layers_are_told_of_each_model():
    """Open on SmolLM2 though random others show it; of the teaching models one shows it."""
    def lost(low, high):
        return Effect((low + high) / 2, low, high, "share", (), 12)

    scores, _ = scored("smollm2-135m", compute="never")
    told = claims_figures.few_heads(lost(0.3, 0.8), scores, {
        "smollm2-135m": lost(-0.1, 0.5), "a": lost(0.1, 0.2), "b": lost(-0.1, 0.2)})
    assert "that is open on SmolLM2 (20 [-10,\u00a050]) and shown in 1 of 2" in told
    shown = claims_figures.few_heads(lost(0.3, 0.8), scores, {"smollm2-135m": lost(0.1, 0.5)})
    assert "that is shown on SmolLM2" in shown


@pytest.mark.parametrize("low, high, said", [
    (0.5, 1.5, "in one of two models, and in one measurably by more"),
    (-0.5, 1.5, "in one of two models, and in none measurably by more")])
def test_models_in_which_training_helps_are_counted(low, high, said):
    def table(strategy, low, high):
        return pd.DataFrame([(strategy, (low + high) / 2, low, high)],
                            columns=["strategy", "effect", "low", "high"])

    gained = {"smollm2-135m": table("retmask", 0.2, 1.8), "other": table("retmask", -1, 1)}
    less = {"smollm2-135m": table("non-retrieval-mask", low, high),
            "other": table("non-retrieval-mask", -2, -1)}
    measure = Measure(above=0, quantity="gain", of=("smollm2-135m", "other"))
    parts = [Part(measure, (model,), Effect(2.2, 0.2, 4.4, "points", (), 65), answer, "", 1, "")
             for model, answer in (("other", PartVerdict("could not have shown it", math.nan)),
                                   ("third", PartVerdict("undecided", 1.0)),
                                   ("smollm2-135m", PartVerdict("undecided", 0.126)))]
    told = claims_figures.training(gained, less, parts, Interval(0.02, 0.01, 0.03))
    assert told.endswith("masks score higher than if others of their layers are masked, by 20 "
                         "[10,\u00a030] thousandths.")
    assert "are masked (on another machine), by" in claims_figures.training(
        gained, less, parts, Interval(0.02, 0.01, 0.03), True)
    assert "with room to move, 2.2 [0.2,\u00a04.4]: undecided." in told
    assert said in told and "it gains 1.0 [0.2,\u00a01.8] of 100 points;" in told


def test_copies_are_counted_within_each_model():
    maps = pd.DataFrame({"model": [*"aaab"], "map": [1, 1, 2, 1]})
    assert "of 4 on 2 models, only 3 differ" in claims_figures.copies(maps)


def test_the_readme_on_larger_models():
    """As counted by hand: needles found by none but the control, and the heads that halve them."""
    scores = needles_left.stored("detection", ["qwen2.5-coder-1.5b"]).results
    answers = needles_left.stored("masking", ["qwen2.5-coder-1.5b", "smollm2-135m"]).answers
    rows = answers.query("position == 'newest' and length == 1024")
    large = rows[rows["model"] == "qwen2.5-coder-1.5b"]
    count = round(0.12 * scores["qwen2.5-coder-1.5b"].mean.size)
    found = large[large["count"] == count].groupby("policy")["success"].mean()
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"finds {100 * (found['same layers'] - found['top heads']):.0f} [90, 99] points" in text
    for model, said in (("qwen2.5-coder-1.5b", (17, 32)), ("smollm2-135m", (1,))):
        own = rows[rows["model"] == model]
        half = own.loc[own["policy"] == "whole", "success"].mean() / 2
        left = own[own["policy"] == "top heads"].groupby("count")["success"].mean()
        enough = left[left <= half].index.min()
        assert (*left.index[left.index < enough][-1:], enough) == said
    assert "half of the facts somewhere between its 17 and its 32 highest heads" in text
