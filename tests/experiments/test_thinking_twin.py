"""The thinking twin: a run at a tiny size, and its comparison with the one that answers at once."""

import dataclasses
import functools

import pandas as pd
import pytest

from rmutils.book.chapters.main_tables import task_effects
from rmutils.book.chapters.main_tables.task_effects import gain, gain_over_thinking_twin
from rmutils.book.experiments import thinking_twin
from rmutils.book.experiments.planned_runs import BEFORE, RETMASK, planned_runs
from rmutils.book.experiments.thinking_twin import (
    INSTRUCT,
    THINKING_TWIN,
    THOUGHT_FIRST,
    TWIN,
    TwinConfig,
    twin_recipe,
)
from rmutils.core.errors import NotStored, UserError
from rmutils.core.experiment import load_plan
from rmutils.core.results import read_tables
from rmutils.evaluation.helmet import EvaluateConfig
from rmutils.heads import DetectConfig, detection
from rmutils.models.teaching import RECIPES, pretraining
from rmutils.pipeline.retmask import RetMaskConfig
from rmutils.training import RECIPES as TRAININGS

PLAN = load_plan("thinking_twin")
QUICK = twin_recipe(PLAN).changed({  # a twin in seconds
    "steps": 2, "warmup": 1, "tokens_per_step": 256, "curriculum": ((1.0, 64),)})


@pytest.fixture(scope="module", autouse=True)
def one_tokenizer():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretraining, "build_tokenizer",
                      functools.cache(pretraining.build_tokenizer))
        yield


@pytest.mark.parametrize(("answer", "well_formed"), [
    ("<think>\nThere is nothing to look up.\n</think>\n\nMonday.", True),
    ("<think>\nOne.\nTwo.\n</think>\n\nYes.\nNo.", True),
    ("Monday.", False), ("<think>\n\n</think>\n\nMonday.", False),
    ("<think>\nIt is Monday.\n</think>\n\n", False), ("<think>\nIt is Monday.", False),
    ("<think>\nOne.\n</think>\n\n<think>\nTwo.\n</think>\n\nYes.", False)])
def test_a_thought_and_an_answer(answer, well_formed):
    assert bool(THOUGHT_FIRST.fullmatch(answer)) == well_formed


def test_the_stored_twin_thinks_before_it_answers():
    facts = thinking_twin.twin_artifact().manifest["facts"]
    assert facts["thought_first"] > 0.9 and facts["heads"]  # the floor of the plan


def test_the_runs_are_those_of_the_main_tables():
    runs = THINKING_TWIN.runs()
    assert [*runs][0] == (TWIN, BEFORE, 0) and len(runs) == 7
    theirs = {(c.strategy, c.seed): c for c in planned_runs(INSTRUCT)}
    for (_, arm, seed), run in runs.items():
        own = theirs[RETMASK if arm == BEFORE else arm, seed]
        assert run.retmask == own.changed({"tau": 0.05})
        assert run.recipe.identity() == RECIPES[INSTRUCT].changed({
            **PLAN.content["twin"]["recipe"], "begins": INSTRUCT}).identity()


def test_a_run(cache, monkeypatch):
    monkeypatch.setattr(detection, "SUCCESS_ROUGE", -1.0)  # every answer is a success
    config = TwinConfig(
        model=TWIN, arm=BEFORE, recipe=QUICK,
        evaluation=EvaluateConfig(datasets=("choice", "summary"), lengths=(300,), samples=2,
                                  thinking=True, thoughts=16),
        retmask=RetMaskConfig(
            instructions=4, tau=0.0, recipe=TRAININGS["smoke"].changed({"max_steps": 2}),
            detect=DetectConfig(lengths=(200,), depths=(0.5,), needles=2, max_new_tokens=4),
        ).changed({"responses.max_new_tokens": 4}))
    small = dataclasses.replace(THINKING_TWIN, planned=lambda plan: [
        config, config.changed({"arm": RETMASK})])
    with pytest.raises(NotStored, match="-p compute_twin auto"):
        small.obtain(config, compute="never")
    found = small.collect(compute="auto")
    before, after = found.artifacts
    assert before.manifest["facts"].keys() == {"heads", "weights", "thought_first", "plan"}
    assert {*read_tables(before.folder)} == {"samples", "baselines"}
    assert after.manifest["facts"]["pairs"] > 0 and {*read_tables(after.folder)} == {"samples"}
    assert found.table("samples").groupby(["arm", "seed"]).size().to_dict() == {
        (BEFORE, 0): 4, (RETMASK, 0): 4}


def scores(model: str, strategy: str) -> pd.DataFrame:
    """Three categories at one length or two, 20 texts each, three or five seeds; the twin gains 2
    points, the other one 5, and in a third category, which one of them cannot do, 50."""
    gain = {TWIN: 2, INSTRUCT: 5}[model] * (strategy == RETMASK)
    rows = [{"stratum": category, "cluster": f"{category} {text}", "length": length,
             "sample": f"{category} {length} {text}", "strategy": strategy, "seed": seed,
             "score": 40 + text + (10 * gain if category == "Cite" else gain)}
            for category in ("Recall", "RAG", "Cite") for text in range(20)
            for length in ((512,) if model == TWIN else (256, 512))
            for seed in (range({TWIN: 3, INSTRUCT: 5}[model]) if strategy == RETMASK else [0])]
    return pd.DataFrame(rows)


def test_gains_of_twins_are_compared_where_both_could_move(monkeypatch):
    monkeypatch.setattr(task_effects, "_scores", lambda model, strategy, config: (
        scores(model, strategy), (f"{model} {strategy}",)))
    monkeypatch.setattr(task_effects, "blind_cells", lambda model, config=None: {
        (category, length): "floor" if (category, model) == ("Cite", TWIN) else ""
        for category in ("Recall", "RAG", "Cite")
        for length in ((512,) if model == TWIN else (256, 512))})
    found = gain_over_thinking_twin(INSTRUCT)
    assert found.value == pytest.approx(3) and found.clusters == 40
    assert "Recall, RAG" in found.note and "3 seeds" in found.note
    assert {name.split()[0] for name in found.artifacts} == {TWIN, INSTRUCT}
    assert gain(TWIN).value == pytest.approx(2)
    monkeypatch.setattr(task_effects, "_scores", lambda model, strategy, config: (
        scores(model, strategy).replace({"cluster": {"RAG 3": "RAG 4"} if model == TWIN else {}}),
        ()))
    with pytest.raises(UserError, match="was not asked the questions of"):
        gain_over_thinking_twin(INSTRUCT)


def test_no_other_strategy_is_planned():
    with pytest.raises(NotStored, match="no run of sft is planned"):
        thinking_twin.twin_scores("sft")
