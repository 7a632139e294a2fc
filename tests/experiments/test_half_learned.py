"""Half-learned models: a run's steps, the planned test against a hand computation, the text."""

import dataclasses
import functools

import numpy as np
import pandas as pd
import pytest
import torch

from rmutils.book.chapters.data_and_training import half_learned as module
from rmutils.book.chapters.data_and_training.half_learned import (
    FURTHER,
    MATCHED,
    HalfLearnedConfig,
    changes,
    compare_arms,
    half_learned,
    smallest_effect,
    verdict,
)
from rmutils.book.experiments.planned_runs import BEFORE, from_other_layers
from rmutils.core.errors import NotStored, UserError
from rmutils.core.experiment import load_plan
from rmutils.core.results import read_tables
from rmutils.evaluation.helmet import EvaluateConfig
from rmutils.heads import DetectConfig, detection
from rmutils.models import load_model
from rmutils.models.teaching import TeachingRecipe, pretraining, train, train_further
from rmutils.pipeline.retmask import RetMaskConfig
from rmutils.training import RECIPES

PLAN = load_plan("half_learned")
RECIPE = TeachingRecipe(family="llama", steps=40, num_hidden_layers=2)
CONFIG = HalfLearnedConfig(
    model="tiny-llama-small", arm=BEFORE, every=2, found=(0.0, 1.0), further=2,
    off_floor=(0.0, 100.0),
    evaluation=EvaluateConfig(datasets=("choice",), lengths=(300,), samples=2),
    retmask=RetMaskConfig(
        instructions=4, tau=0.0, recipe=RECIPES["smoke"].changed({"max_steps": 2}),
        detect=DetectConfig(lengths=(200,), depths=(0.5,), needles=3, max_new_tokens=8),
    ).changed({"responses.max_new_tokens": 4}))


@pytest.fixture
def one_tokenizer(monkeypatch):
    monkeypatch.setattr(pretraining, "build_tokenizer",
                        functools.cache(pretraining.build_tokenizer))
    monkeypatch.setattr(detection, "SUCCESS_ROUGE", -1.0)  # every answer is a success


def test_a_run_and_what_is_collected(cache, monkeypatch, one_tokenizer):
    monkeypatch.setitem(module.RECIPES, "tiny-llama-small", RECIPE)
    small = dataclasses.replace(module.HALF_LEARNED, planned=lambda plan: [
        CONFIG, *(CONFIG.changed({"arm": arm}) for arm in ("retmask", FURTHER, "sft"))])
    monkeypatch.setattr(module, "HALF_LEARNED", small)
    assert half_learned() is None
    with pytest.raises(NotStored, match="-p compute_half auto"):
        small.obtain(CONFIG, compute="never")
    artifact = small.obtain(CONFIG.changed({"arm": "retmask"}))
    tables, facts = read_tables(artifact.folder), artifact.manifest["facts"]
    assert facts["step"] == 2 and facts["plan"] == PLAN.digest
    assert list(tables["tasks"]["dataset"]) == ["choice"] and len(tables["cases"]) == 3
    small.obtain(CONFIG.changed({"arm": FURTHER}))
    other = dataclasses.replace(PLAN, digest="0" * 16)
    monkeypatch.setattr(module, "HALF_LEARNED", small.by_plan(other))
    found = half_learned()
    assert (found.done, found.planned) == (2, 3)
    assert len(found.deviations) == 4  # other plans, and tau of 0 leaves no other head
    assert set(found.cases["arm"]) == {BEFORE, "retmask", FURTHER}
    shown = changes(found)
    assert shown["measure"].nunique() == 4 and set(shown["label"]) == {
        "tiny-llama-small, RetMask", "tiny-llama-small, more steps"}


def test_further_steps_are_those_of_the_training(tmp_path, one_tokenizer):
    folder = train(RECIPE, tmp_path / "model", until=1)
    kept = (folder / ".training" / "checkpoint.pt").read_bytes()
    own, other = (train_further(RECIPE, folder, 1, seed=seed).state_dict() for seed in (0, 1))
    assert (folder / ".training" / "checkpoint.pt").read_bytes() == kept
    whole = load_model(str(train(RECIPE, folder, until=2))).model.state_dict()
    assert all(torch.equal(own[name], whole[name]) for name in whole)
    assert not all(torch.equal(other[name], whole[name]) for name in whole)
    with pytest.raises(UserError, match="does not go back to step 1"):
        train(RECIPE, folder, until=1)


def cases_of(found: dict[str, list[list[int]]], model: str = "toy") -> pd.DataFrame:
    """Arm -> seed -> success of each needle; a found needle has a score of 0.1 times its number."""
    return pd.DataFrame([
        {"model": model, "arm": arm, "seed": seed, "needle": needle, "length": 9, "depth": 0.5,
         "success": bool(hit), "retrieval": 0.1 * needle * hit, "others": 0.0}
        for arm, seeds in found.items() for seed, hits in enumerate(seeds)
        for needle, hit in enumerate(hits)])


def test_arms_are_compared_as_by_hand():
    cases = cases_of({"retmask": [[1, 1, 1], [1, 1, 0], [1, 1, 1]],
                      MATCHED: [[1, 0, 0], [1, 0, 0], [1, 1, 0]], BEFORE: [[0, 1, 0]]})
    row, = compare_arms(cases).itertuples()
    # seeds: 2/3, 1/3, 1/3; of 8 patterns of signs, two have a sum as large as all plus
    assert row.effect == pytest.approx(4 / 9) and row.seeds == 3 and row.p == row.p_holm == 2 / 8
    assert row.low < row.effect < row.high
    before, = compare_arms(cases, base=BEFORE).itertuples()
    assert before.effect == pytest.approx(5 / 9)
    scores = cases.assign(retrieval=cases["retrieval"] + (cases["arm"] == "retmask") * 0.02)
    both, = compare_arms(scores, measure="retrieval").itertuples()
    assert both.effect == pytest.approx(0.02)


def test_intervals_of_scores_allow_for_other_needles():
    """The seeds agree and the needles do not: the fewer needles, the wider. A needle that one arm
    misses in one seed counts in the others."""
    def compared(needles):
        cases = cases_of({arm: [[1] * needles] * 6 for arm in ("retmask", MATCHED)})
        ours = cases["arm"] == "retmask"
        cases.loc[ours, "retrieval"] += np.where(cases.loc[ours, "needle"] % 2, 0.1, -0.06)
        cases.loc[ours & (cases["seed"] == 0) & (cases["needle"] == 0), "success"] = False
        row, = compare_arms(cases, measure="retrieval").itertuples()
        return row

    few, many = compared(4), compared(40)
    assert few.effect == pytest.approx((5 * 0.02 + (0.1 - 0.06 + 0.1) / 3) / 6)
    assert few.low < 0 < few.high and many.low < many.effect < many.high
    assert many.high - many.low < (few.high - few.low) / 2


def test_the_smallest_effect_is_that_of_the_plan():
    told = PLAN.content["smallest_effect"]["share_of_needles"]
    assert smallest_effect(seeds=PLAN.content["seeds"], cases=100) == told


@pytest.mark.parametrize(("gains", "told"), [
    ((9, 9, 0), "shown"), ((9, 0, 0), "in_part"), ((-9, -9, 0), "shown"), ((9, -9, 0), "undecided"),
    ((0, 0, 0), "excluded")])
def test_the_verdict_follows_the_rule_of_the_plan(gains, told):
    seeds = range(10)
    cases = pd.concat([cases_of({
        "retmask": [[int(i < 10 + gain) for i in range(20)] for _ in seeds],
        MATCHED: [[int(i < 10) for i in range(20)] for _ in seeds]}, f"model {n}")
        for n, gain in enumerate(gains)])
    assert verdict(compare_arms(cases), PLAN) == told


def test_a_crowded_layer_leaves_too_few_other_heads():
    """Of 16 heads 11 are masked: five others are left, so six come from elsewhere."""
    told = from_other_layers("tiny-llama", [[3, head] for head in range(11)] + [[2, 0]])
    assert "6 of the control's 12 heads" in told
    assert not from_other_layers("tiny-llama", [[3, head] for head in range(8)])
