"""Quantities of the larger models, from hand-made results of their plan."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from rmutils.book.chapters.general_abilities import general_change
from rmutils.book.chapters.main_tables import task_effects
from rmutils.book.chapters.masking_sweep import findings as masking_sweep
from rmutils.book.chapters.masking_sweep import larger_sweeps
from rmutils.book.chapters.masking_sweep.findings import (
    needles_lost_beyond_others,
    needles_lost_beyond_same_layers,
)
from rmutils.book.chapters.score_distribution import findings
from rmutils.book.chapters.training_effect import real_training
from rmutils.book.chapters.training_effect.findings import retrieval_heads_change_beyond
from rmutils.book.chapters.training_effect.real_training import RealTraining
from rmutils.book.experiments.masked_needles import (
    ANYWHERE,
    COPY,
    EVERY,
    MATCHED,
    NEWEST,
    TOP,
    WHOLE,
    MaskedNeedles,
)
from rmutils.book.experiments.planned_runs import BEFORE, RETMASK
from rmutils.book.experiments.planned_runs import MATCHED as MATCHED_MASK
from rmutils.book.experiments.real_tasks import CONTROL, States
from rmutils.book.verdicts import CannotShow
from rmutils.core.errors import NotStored, UserError
from rmutils.heads.scores import HeadScores
from tests.experiments.test_half_masked import run, scores

MODEL = "gemma3-270m"
LARGER = "qwen2.5-coder-0.5b"


@pytest.fixture
def detection(monkeypatch):
    """Of 20 heads, two reach the plan's tau; a third reaches only that of gemma's family, 0.05."""
    means = np.full((2, 10), 0.01)
    means[0, :3] = 0.5, 0.2, 0.08
    cases = pd.DataFrame({"case": range(4), "needle": range(4), "success": True})
    found = HeadScores(np.tile(means, (4, 1, 1)), MODEL, np.arange(4), cases)
    asked = []

    def detect_stored(model, config, compute):
        asked.append((model, config.lengths, config.needle_set, compute))
        return found, SimpleNamespace(name="detect-1")

    monkeypatch.setattr(larger_sweeps, "detect_stored", detect_stored)
    return asked


def rows(policy, count, found, draw=0, position=NEWEST, length=1024):
    return pd.DataFrame({
        "score": "" if policy == WHOLE else COPY, "policy": policy, "count": count, "draw": draw,
        "position": position, "set": "facts-literal", "length": length, "depth": 0.5,
        "needle": range(32), "success": np.arange(32) < found})


@pytest.fixture
def masked(monkeypatch, detection):
    """Without the two heads 12 needles are left; without others 28 and 24, or 30 from anywhere.
    Other numbers, lengths and positions say something else."""
    answers = [rows(WHOLE, 0, 32), rows(TOP, 2, 12), rows(MATCHED, 2, 28), rows(MATCHED, 2, 24, 1),
               rows(ANYWHERE, 2, 30), rows(TOP, 4, 0), rows(MATCHED, 4, 32)]
    answers += [one.assign(**{column: other, "success": False}) for one in answers[:5]
                for column, other in (("position", EVERY), ("length", 256))]
    maskings = pd.DataFrame({"policy": [TOP, MATCHED, MATCHED, ANYWHERE], "count": 2,
                             "displaced": [0, 1, 0, 0]})
    result = MaskedNeedles(maskings, pd.concat(answers, ignore_index=True))
    monkeypatch.setattr(masking_sweep, "masking_stored",
                        lambda model, compute: (result, SimpleNamespace(name="masked-1")))
    return result


def test_heads_are_those_of_the_plan(detection):
    share = findings.share_of_retrieval_heads(MODEL)
    assert share.value == 2 / 20 and share.artifacts == ("detect-1",)
    assert detection == [(MODEL, (512, 1024, 2048), "facts-literal", "never")]
    held = findings.scores_held_by_top_tenth(MODEL)  # two of 20
    assert held.value == pytest.approx(0.7 / (0.78 + 17 * 0.01))
    few = findings.retrieval_heads_from_few_needles(MODEL)
    assert few.value == 1 and few.note.startswith("over all 4 choices")


def test_needles_lost_without_all_heads_at_tau(masked):
    same = needles_lost_beyond_same_layers(MODEL)
    assert same.value == pytest.approx((26 - 12) / 32) and same.low < same.value < same.high
    assert (same.clusters, same.blocked, same.artifacts) == (32, "", ("masked-1", "detect-1"))
    assert same.note == ("2 random choices of 2 heads, of which 0.5 on average come from another "
                         "layer")
    free = needles_lost_beyond_others(MODEL)
    assert free.value == pytest.approx((30 - 12) / 32)
    assert free.note == "1 random choices of 2 heads"


def test_a_model_that_finds_little_has_no_say(masked):
    whole = masked.answers["policy"] == WHOLE
    masked.answers.loc[whole, "success"] = masked.answers.loc[whole, "needle"] < 10
    assert "finds 31% of the needles" in needles_lost_beyond_others(MODEL).blocked


def test_without_a_control_there_is_no_say(masked):
    masked.answers.loc[masked.answers["policy"] == MATCHED, "count"] = 4
    with pytest.raises(CannotShow, match="2 of 20 heads reach"):
        needles_lost_beyond_same_layers(MODEL)


def questions(*values):
    """A data set for each row of scores."""
    return pd.DataFrame([(f"set {k}", i, float(value)) for k, row in enumerate(values)
                         for i, value in enumerate(row)], columns=["dataset", "sample", "score"])


def test_score_lost(monkeypatch):
    states = States({WHOLE: questions([60] * 8, [20] * 8), TOP: questions([10] * 8, [20] * 8),
                     CONTROL: questions([50] * 8, [20] * 8)}, "dataset",
                    [SimpleNamespace(name="evaluation-1")])
    monkeypatch.setattr(task_effects, "tasks_by_state", lambda model: states)
    found = task_effects.score_lost_beyond_same_layers(MODEL)
    assert (found.value, found.clusters, found.blocked) == (20, 16, "")
    assert found.note == "set 0, set 1, at 2,048 tokens"


@pytest.fixture
def training(monkeypatch):
    """RetMask adds 0.2 to its heads, and points to both data sets; its control nothing."""
    before, runs, outcomes = scores(0), {}, {}
    for seed in (1, 2):
        own = run(scores(seed, {(0, 1): 0.2, (1, 2): 0.2}), [(0, 1), (1, 2)])
        for arm, one in ((RETMASK, own), (MATCHED_MASK, run(scores(seed + 5), [(0, 0), (1, 1)]))):
            one.artifact = SimpleNamespace(manifest={"config": {"seed": seed}})
            one.before, runs[arm, seed] = before, one
            more = 10 * seed if arm == RETMASK else 0
            outcomes["tasks", arm, seed] = questions([30 + more] * 8, [40] * 8)
    outcomes["tasks", BEFORE, 0] = questions([30] * 8, [40] * 8)
    found = RealTraining(runs, outcomes, [SimpleNamespace(name="retmask-1")], ["rmutils first"])
    monkeypatch.setattr(real_training, "_collected", lambda: found)
    return found


def test_changes_by_training(training):
    change = task_effects.gain(LARGER)
    assert change.value == pytest.approx((10 + 20) / 2 / 2) and change.clusters == 16
    assert change.note == "set 0, set 1, at 2,048 tokens; 2 seeds, interval over questions"
    assert task_effects.gain_at_longest(LARGER).value == change.value
    assert task_effects.lead(LARGER, MATCHED_MASK).value == pytest.approx(7.5)
    beyond = retrieval_heads_change_beyond(LARGER, MATCHED_MASK)
    planned = training.scores().set_index(["against", "seed"]).loc[(MATCHED_MASK, "both"), "value"]
    assert beyond.value == planned and beyond.low > 0.1 and beyond.clusters == 4


def test_what_was_not_planned_is_refused(training):
    with pytest.raises(UserError, match="sft"):
        task_effects.lead(LARGER, "sft")
    with pytest.raises(UserError, match="2,048 tokens, not at 512"):
        task_effects.gain_at(LARGER, 512)


def test_abilities_that_could_have_moved(training):
    """Multiple choice is at chance, so the mean is that of the letters, which lose five points."""
    def asked(letters, choice):
        return questions([letters] * 8, [choice] * 8).rename(columns={"dataset": "task"}).replace(
            {"set 0": "letters", "set 1": "multiple choice"})

    for seed in (1, 2):
        training.outcomes["abilities", RETMASK, seed] = asked(75, 90)
    with pytest.raises(NotStored, match="compute_real auto"):
        general_change(LARGER)
    training.outcomes["abilities", BEFORE, 0] = asked(80, 25)
    found = general_change(LARGER)
    assert found.value == -5 and found.clusters == 8
    assert found.note.startswith("1 of 2 tasks: letters; 2 seeds")


def test_missing_runs_are_named(training):
    training.runs.pop((RETMASK, 2))
    for ask in (task_effects.gain, general_change,
                lambda model: retrieval_heads_change_beyond(model, MATCHED_MASK)):
        with pytest.raises(NotStored, match="`rmutils first`"):
            ask(LARGER)
