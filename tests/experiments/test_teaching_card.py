"""The model card of a teaching model: what counts as right, and what stands in the card."""

import pytest

from rmutils.corpora.world import World
from rmutils.corpora.world.knowledge import instructions
from rmutils.corpora.world.samples import Sample
from rmutils.corpora.world.tasks import TASKS, task
from rmutils.evaluation import teaching_card as teaching_models
from rmutils.evaluation.answers import is_right


def words(text: str) -> int:
    return len(text.split())


@pytest.mark.parametrize("kind", TASKS)
def test_right_answers_to_tasks_are_right(kind):
    samples = [task(kind, World(i, "held_out"), 300, words) for i in range(20)]
    for sample in samples:
        assert is_right(sample, sample.answer)
        assert is_right(sample, f"<think>\nWho knows?\n</think>\n\n{sample.answer}")
        assert not is_right(sample, f"<think>\n{sample.answer}\n</think>\n\nNobody knows.")
        assert not is_right(sample, f"<think>\n{sample.answer}") and not is_right(sample, "")
    wrong = [is_right(a, b.answer) for a, b in zip(samples, samples[1:], strict=False)]
    assert sum(wrong) < 5


def test_right_answers_to_instructions_are_right():
    samples = instructions(300, 0, "held_out")
    assert all(is_right(sample, sample.answer) for sample in samples)


def test_by_hand():
    one = Sample("needle", "", "", golds=("tin key",))
    assert is_right(one, "Tin key.") and not is_right(one, "A tin whistle and a brass key.")
    two = Sample("needles", "", "", golds=("tin key", "Dalton"))
    assert is_right(two, "Dalton. A tin key.") and not is_right(two, "A tin key.")
    ranking = Sample("rerank", "", "[3] > [1] > [4]", golds=("3:2", "1:1", "4:1"))
    assert is_right(ranking, "[3] > [1] > [4]")
    assert not is_right(ranking, "[1] > [3] > [4]") and not is_right(ranking, "3:2 1:1 4:1")


@pytest.mark.parametrize("row, wanted, reached", [
    (("needles found", "512 tokens", 0.95, 0.9, 1), ">= 0.95", "yes"),
    (("needles found", "512 tokens", 0.94, 0.9, 1), ">= 0.95", "no"),
    (("needles found", "1024 tokens", 0.2, 0.1, 0.3), "", ""),
    (("heads at or above tau", "share", 0.21, 0.1, 0.3), "<= 0.2", "no"),
    (("needles lost from 512 to 2048 tokens", "", 0.1, 0.0, 0.3), "> 0", "no"),
    (("needles lost from 512 to 2048 tokens", "", 0.1, 0.01, 0.3), "> 0", "yes"),
])
def test_what_is_wanted(row, wanted, reached):
    """A difference from zero has to be shown by its interval."""
    assert row[:2] not in teaching_models.WANTED or wanted
    assert teaching_models._judge(row) == (wanted, reached)
