"""The planned runs in their order; two small ones, stored; differences worked out by hand."""

from dataclasses import replace

import pandas as pd
import pytest

from rmutils.book.chapters.olmo3_recipe import ablations as experiment
from rmutils.book.chapters.olmo3_recipe import findings
from rmutils.book.chapters.olmo3_recipe.ablations import (
    RecipeParts,
    arm_effects,
    planned,
    recipe_parts,
)
from rmutils.core.errors import NotStored
from rmutils.core.experiment import Plan, load_plan

PLAN = load_plan("olmo3_ablations")
ARMS = ["recipe", "no-rex", "natural", "split", "unmasked"]


def test_stored_runs_are_collected_and_missing_ones_counted(cache, monkeypatch):
    small = Plan("small", "0123456789abcdef", PLAN.content | {
        "seeds": 1, "arms": {"recipe": "", "unmasked": ""},
        "fine_tune": {"steps": 2, "tokens_each": 704, "learning_rate": 1e-3,
                      "checkpoints": [0.5, 1]},
        "asked": {"length": 400, "texts": 2, "questions": 2, "seed": 1}})
    parts = experiment.RECIPE_PARTS.by_plan(small)
    monkeypatch.setattr(experiment, "RECIPE_PARTS", parts)
    assert recipe_parts() is None
    first, second = planned(small)
    with pytest.raises(NotStored, match="-p compute_parts auto"):
        parts.obtain(first, compute="never")
    parts.obtain(first)
    with monkeypatch.context() as patch:  # what is stored is not made again
        patch.setattr(experiment, "load_model", None)
        assert parts.obtain(first).manifest["facts"]["plan"] == small.digest
    found = recipe_parts()
    assert found.done == [("recipe", 0)] and found.planned == 2 and not found.complete
    assert found.deviations == []
    assert parts.by_plan(replace(small, digest="other")).collect().deviations
    assert sorted(found.found["tokens"].unique()) == [704, 1408]
    assert len(found.found) == 2 * 2 * 2 and set(found.losses["text"]) == {0, 1}
    parts.obtain(second)
    effects = arm_effects(recipe_parts())
    assert list(effects["arm"]) == ["unmasked"] * 4 and (effects["effect"] != 0).any()


def by_hand(seeds=3, **more):
    """Four texts with two positions and two facts each: an arm's loss is higher by `more`."""
    rows = [(arm, seed, text, at) for arm in ARMS for seed in range(seeds) for text in range(4)
            for at in (0, 1)]
    table = pd.DataFrame(rows, columns=["arm", "seed", "text", "at"]).assign(tokens=9)
    extra = table["arm"].map(more).fillna(0) * (1 + table["text"] / 10 + table["seed"] / 100)
    return RecipeParts(
        table.assign(depth=table["at"] / 2, found=(table["arm"] != "natural") | (table["at"] > 0)),
        table.assign(position=table["at"], loss=1 + table["text"] + table["at"] + extra),
        [(arm, seed) for arm in ARMS for seed in range(seeds)], 15, [])


def test_differences_by_hand():
    effects = arm_effects(by_hand(natural=0.5, split=-0.5)).set_index(["measure", "arm"])
    assert effects.loc[("loss", "natural"), "effect"] == pytest.approx(0.5 * 1.16)
    assert effects.loc[("loss", "split"), "effect"] == pytest.approx(-0.5 * 1.16)
    assert effects.loc[("loss", "natural"), "low"] > 0
    assert effects.loc[("found", "natural"), "effect"] == -0.5
    assert (effects.loc[("loss", "unmasked"), ["effect", "low", "high"]] == 0).all()
    assert set(effects["seeds"]) == {3} and len(effects) == 8


def test_a_part_has_no_finding_before_all_runs_are_there(monkeypatch):
    every = by_hand(natural=0.5)
    for parts, known in ((every, True), (None, False), (replace(every, planned=16), False)):
        monkeypatch.setattr(experiment, "recipe_parts", lambda parts=parts: parts)
        findings.parts_at_end.cache_clear()
        if known:
            assert findings.part_loss("natural").found.value == pytest.approx(0.5 * 1.16)
            assert findings.part_facts("natural").found.value == -50
        else:
            with pytest.raises(NotStored, match="-p compute_parts auto"):
                findings.part_loss("natural")
    findings.parts_at_end.cache_clear()


def test_seeds_of_one_recipe_differ_by_their_final_losses(monkeypatch):
    """Three seeds whose losses rise by a quarter of a nat each; what is asked earlier is left out,
    and so are other arms."""
    parts = by_hand(natural=9)
    moved = parts.losses.assign(loss=parts.losses["loss"] + parts.losses["seed"] / 4)
    early = moved.assign(tokens=1, loss=moved["loss"] * 5)
    known = replace(parts, losses=pd.concat([early, moved]))
    monkeypatch.setattr(findings, "parts_at_end", lambda: (known, None))
    assert findings.seeds_differ().found.value == pytest.approx(0.5)
