"""The findings of the first page: those of the README, and each as a count by hand has it."""

import math

import pandas as pd
import pytest

from rmutils.core.paths import ROOT
from rmutils.experiments.masking_sweep import SweepConfig, scored, sweep_stored
from rmutils.experiments.sweep_questions import HAYSTACK
from rmutils.figures import claims_figures
from rmutils.models.known_models import tau_of
from rmutils.paper.claims import Measure, Part
from rmutils.paper.effects.head_effects import needles_lost_beyond_others
from rmutils.paper.verdicts import Effect, PartVerdict


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
    told = claims_figures.few_heads(needles_lost_beyond_others("smollm2-135m"), scores)
    assert f"Switch off {count} of SmolLM2's 270" in told and f"misses {more:.0f} [" in told


@pytest.mark.parametrize("low, high, said", [
    (0.1, 0.3, "**A few heads find"), (-0.1, 0.3, "**Whether a few"),
    (-0.3, -0.1, "find no facts")])
def test_the_interval_decides_what_is_said_of_the_heads(low, high, said):
    scores, _ = scored("smollm2-135m", compute="never")
    assert said in claims_figures.few_heads(
        Effect((low + high) / 2, low, high, "share", (), 12), scores)


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
    told = claims_figures.training(gained, less, parts)
    assert "it gains 2.2 [0.2,\u00a04.4]: undecided (p = 0.13, corrected for two models)" in told
    assert said in told and f"1.0 [0.2,\u00a01.8] of 100 points, {(low + high) / 2:.1f} [" in told


def test_copies_are_counted_within_each_model():
    maps = pd.DataFrame({"model": [*"aaab"], "map": [1, 1, 2, 1]})
    assert "Of 4 runs on 2 models, only 3 differ" in claims_figures.copies(maps)
