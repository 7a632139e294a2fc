"""Scores of one answer: by hand, and against Python's sets."""

import numpy as np
import pytest

from rmutils.attention.decoding import Answer
from rmutils.corpora.haystacks import Needle
from rmutils.corpora.niah import NiahCase
from rmutils.heads import DetectConfig, detection
from rmutils.heads.copy_score import SUCCESS_ROUGE, CopyScore, copy_counts, rouge_recall, wu_span


@pytest.mark.parametrize("prompt, needle, span", [
    ([1, 2, 3, 4, 5], [3, 4], (2, 4)),
    ([4, 3, 9, 3, 4], [3, 4], (0, 2)),  # a set has no order
    ([3, 3, 3, 4], [3, 4], (2, 4)),
    ([1, 2, 3], [3, 4], (-1, -1)),
    (list(range(1, 11)) + [99], [*range(2, 11), 50], (-1, -1)),  # 9 of 10 is not above 90 %
    ([0, *range(1, 11), 99], [*range(1, 11), 50], (0, 11)),  # 10 of 11 is
    ([7, 7, 5], [5, 5, 5], (0, 3)),  # all of the needle's one token, and the earliest window
])
def test_wu_span_by_hand(prompt, needle, span):
    assert wu_span(prompt, needle) == span


def test_copies_against_sets():
    """Random answers over three tokens, so that hits are frequent."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        length, steps = rng.integers(4, 12), rng.integers(0, 8)
        prompt = rng.integers(0, 3, length).tolist()
        start = int(rng.integers(0, length - 1))
        span = (start, int(rng.integers(start + 1, length + 1)))
        answer = Answer(rng.integers(0, 3, steps), rng.integers(0, length + steps, (steps, 2, 3)))
        once, repeated = (copy_counts(answer, prompt, span, repeats=r) for r in (False, True))
        for layer, head in np.ndindex(2, 3):
            looked = answer.positions[:, layer, head]
            copied = [j for y, j in zip(answer.tokens, looked, strict=True)
                      if j in range(*span) and prompt[j] == y]
            assert once[layer, head] == len(set(copied)) <= span[1] - span[0]
            assert repeated[layer, head] == len(copied)


def test_success_is_recall_above_half():
    """Half of the answer's words is not enough; word endings and case do not matter."""
    assert SUCCESS_ROUGE == 0.5
    assert rouge_recall("one two three four", "two, and four!") == 0.5
    assert rouge_recall("teaching crows to sort coins", "He Teaches a crow to SORT coins.") == 1
    assert rouge_recall("one two", "") == 0


@pytest.mark.parametrize("response, success", [("red blue", False), ("Red, blue and green", True)])
def test_a_record_says_whether_it_counts(llama, response, success):
    ids = llama.tokenizer(response)["input_ids"]
    case = NiahCase("id", 0, 20, 0.5, "part1", "", (1, 2, 3), (1, 3), (0, 3),
                    Needle("n", "q", "red blue green gold"))
    answer = Answer(np.array(ids), np.zeros((len(ids), 4, 4), dtype=int))
    record = detection._record(CopyScore(llama, DetectConfig()), case, answer, 0.5)
    assert record["success"] is success and record["response"] == response
    assert record["needle_tokens"] == 2 and record["scores"] == {}
