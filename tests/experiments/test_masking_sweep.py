"""A sweep asks all maskings the same, and goes on after a kill with the same tables."""

import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rmutils.book.chapters.masking_sweep import experiment as module
from rmutils.book.chapters.masking_sweep.experiment import SEED, SweepConfig, sweep, sweep_stored
from rmutils.book.chapters.masking_sweep.findings import answers_left
from rmutils.book.chapters.masking_sweep.larger_sweeps import LARGER_SWEEPS, larger_sweep
from rmutils.book.experiments import sweep_questions as about
from rmutils.book.site.parameters import check_parameters, read_parameters
from rmutils.core.errors import UserError
from rmutils.core.paths import NOTEBOOKS
from rmutils.corpora.niah import load_needles
from rmutils.corpora.world.samples import Sample
from rmutils.corpora.world.tasks import TASKS
from rmutils.evaluation.answers import answer
from rmutils.evaluation.teaching_card import NEEDLE_FILE
from rmutils.heads import HeadScores, detect, mask_heads
from rmutils.heads.detection import DetectConfig
from rmutils.models import load_model

SMALL = SweepConfig(counts=(2, 64), taus=(0.1,), draws=2, length=160, needles=3, samples=2, short=4,
                    speeches=2, max_new_tokens=16)
TINY = SMALL.model_copy(update={"counts": (1, 3), "length": 400, "max_new_tokens": 4})


@pytest.fixture(scope="module")
def teaching():
    """A teaching model, and what its heads score."""
    lm = load_model("tiny-qwen3")
    return lm, detect(lm, DetectConfig(lengths=(160,), depths=(0.5,), needles=8))


@pytest.fixture(scope="module")
def result(teaching):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TASKS", ("needle", "classify"))
        return sweep(*teaching, SMALL)


def test_whole_model_is_the_unmasked_one(teaching, result):
    lm, _ = teaching
    whole = result.answers[result.answers["policy"] == "whole"]
    samples = about.task_samples(lm, "needle", 2, 160, SEED)
    answers = answer(lm, [lm.render(sample.prompt) for sample in samples], max_new_tokens=16)
    found = whole[whole["task"] == "needle"]
    assert found["response"].tolist() == answers
    assert found["correct"].tolist() == [float(sample.golds[0] in text)
                                         for sample, text in zip(samples, answers, strict=True)]
    needles = whole[whole["task"] == "haystack"]
    values = [needle.real_needle for needle in load_needles(NEEDLE_FILE)]
    assert needles["cluster"].tolist() == [0, 1, 2] and needles["correct"].all()
    assert all(values[row.cluster] in row.response for row in needles.itertuples())


def test_nothing_is_right_without_heads(result):
    """All 64 heads masked: no needle, no fact known by heart, and far fewer next words."""
    right = result.answers.groupby(["count", "task"])["correct"].mean().unstack()
    assert right.loc[0, ["haystack", "by heart"]].min() > 0.5
    assert (right.loc[64].drop("next words") == 0).all()
    assert right.loc[64, "next words"] < right.loc[0, "next words"] / 2
    odd = result.speech.groupby("count")["surprise"].mean()
    assert odd[64] > odd[0] + 1


def test_all_maskings_are_asked_the_same(teaching, result):
    _, scores = teaching
    keys = ["policy", "draw", "count"]
    asked = result.answers.groupby(keys)[["task", "sample", "cluster"]].apply(
        lambda part: tuple(map(tuple, part.to_numpy())))
    assert asked.nunique() == 1 and len(asked) == 1 + 3 + 2 * 2
    reached = int((scores.mean >= 0.1).sum())
    assert {*result.answers["count"]} == {0, 2, reached, 64}
    assert result.speech.groupby(keys)["instruction"].apply(tuple).nunique() == 1
    assert not result.answers.duplicated([*keys, "task", "sample"]).any()


def test_answers_are_those_of_the_masked_model(teaching, result):
    lm, scores = teaching
    samples = about.by_heart_samples(4, SEED)
    with mask_heads(lm, scores.select(top_k=2)):
        answers = answer(lm, [lm.render(s.prompt) for s in samples], max_new_tokens=16)
    chosen = result.answers.query("policy == 'retrieval' and count == 2 and task == 'by heart'")
    assert chosen["response"].tolist() == answers


def test_known_by_heart_cannot_be_copied():
    samples = about.by_heart_samples(120, "test")
    assert len({sample.prompt for sample in samples}) == 120
    assert {sample.kind for sample in samples} == {*about.KNOWN}
    for sample in samples:
        assert sample.golds[0].lower() not in sample.prompt.lower(), sample.prompt
        assert about.chance(sample) == 0


def test_chance_by_hand():
    text = "Ida owns a mole. Ida Moor likes bread! Tom owns a hen.\n\nTom likes bread."
    assert about.chance(Sample("needle", "", "", text, golds=("a mole",))) == 1 / 4
    assert about.chance(Sample("needle", "", "", text, golds=("Bread",))) == 2 / 4
    assert about.chance(Sample("needles", "", "", text, golds=("a mole", "bread"))) == 0
    labelled = "Text: Ida owns a mole. Label: 42\nText: Tom likes bread. Label: 17"
    assert about.chance(Sample("classify", "", "", labelled, golds=("17",))) == 1 / 2


def any_sentence(sample: Sample, i: int) -> str:
    units = about._UNITS.split(sample.context)
    return units[5 * i % len(units)]


@pytest.mark.parametrize(("kind", "said", "within_reach"), [
    ("needle", lambda sample, i: sample.answer, True),
    ("needle", lambda sample, i: "", False),
    ("needle", any_sentence, False),
    ("classify", any_sentence, False),  # surely above 0, but not above chance
])
def test_screening_tells_ability_from_chance(llama, monkeypatch, kind, said, within_reach):
    samples = about.task_samples(llama, kind, 30, 500, "test")
    monkeypatch.setattr(about, "answer", lambda lm, prompts, max_new_tokens: [
        said(samples[i], i) for i in range(len(prompts))])
    row, = about.screen(llama, {kind: samples}, 8).itertuples()
    assert row.within_reach == within_reach and row.samples == 30
    assert 0.02 < row.chance < 0.6 and row.low <= row.value <= row.high
    assert (row.low > 0) == (within_reach or kind == "classify")


def test_tasks_out_of_reach_are_not_swept(llama, monkeypatch):
    """A random model can do none, but the haystack and the next words are always asked."""
    monkeypatch.setattr(module, "TASKS", ("needle",))
    found = sweep(llama, HeadScores(np.random.default_rng(0).random((1, 4, 4)) / 9, "x"), TINY)
    assert found.screening["task"].tolist() == ["needle", "by heart"]
    assert not found.screening["within_reach"].any()
    assert {*found.answers["task"]} == {"haystack", "next words"}


def test_key_depends_on_scores_but_not_on_their_last_bits(tiny):
    scores, keys = np.arange(16).reshape(1, 4, 4) / 100, []
    for values in (scores, scores + 1e-13, scores + 0.01):
        with pytest.raises(UserError) as error:
            sweep_stored(str(tiny), HeadScores(values, "tiny model"), TINY, compute="never")
        keys += [word for word in str(error.value).split() if word.startswith("masking-sweep-")]
    assert keys[0] == keys[1] != keys[2] and len(keys) == 3


def test_command_gives_the_same_configuration(tiny):
    """The chapter has the same defaults, so the command names only what differs."""
    chapter = NOTEBOOKS / "02_masking_sweep.ipynb"
    defaults = {name: parameter.default for name, parameter in read_parameters(chapter).items()}
    scores = HeadScores(np.zeros((1, 4, 4)), "tiny model")
    for config in (SweepConfig(), TINY, SMALL.model_copy(update={"depths": (0.25, 1.0)})):
        with pytest.raises(UserError) as error:
            sweep_stored(str(tiny), scores, config, compute="never")
        command = shlex.split(str(error.value).split("`")[1])
        assert command[:3] == ["rmutils", "run", chapter.stem]
        named = check_parameters(chapter, dict(zip(
            command[4::3], command[5::3], strict=True)))
        assert Path(named.pop("model")).resolve() == Path(tiny).resolve()
        settings = {k: v for k, v in (defaults | named).items() if k in SweepConfig.model_fields}
        assert set(settings) == {*SweepConfig.model_fields} - {"policies"}
        assert SweepConfig(**settings) == config


def test_larger_sweeps_are_those_of_the_plan():
    """By hand: 40 of Llama's 1,024 heads are 13.1 of 336, and tau is reached by 80."""
    runs = LARGER_SWEEPS.collect()
    assert not runs.missing and [*runs.left_out] == ["gemma3-270m"]  # no chat template
    swept = larger_sweep("qwen2.5-coder-0.5b")
    assert (swept.nearest(40), swept.nearest(60), swept.at_tau) == (13, 20, 80)
    answers = pd.read_parquet(swept.artifact.path("answers.parquet"))
    asked = answers[(answers["count"] == 13) & answers["task"].isin(TASKS)]
    assert answers_left("qwen2.5-coder-0.5b", "tasks", 40).value == asked["correct"].mean()
