"""Questions whose document moves, and nothing else."""

import re

import pytest

from rmutils.corpora.world.document_questions import document_question_at
from rmutils.corpora.world.samples import TooShort
from rmutils.corpora.world.writing import Chronicle

PLACES = (0.0, 0.25, 0.5, 0.75, 1.0)


def words(text: str) -> int:
    return len(text.split())


def documents(context: str) -> list[str]:
    """Their texts, without numbers, which have to be 1, 2, 3, ..."""
    numbers, texts = zip(*re.findall(r"^Document (\d+) (.*)$", context, re.M), strict=True)
    assert [*map(int, numbers)] == [*range(1, len(numbers) + 1)]
    return [*texts]


@pytest.mark.parametrize("seed", range(8))
def test_only_the_right_document_moves(seed):
    moved = document_question_at(Chronicle(f"test {seed}"), 260, words, PLACES)
    first = moved[0]
    gold = documents(first.context)[0]
    others = documents(first.context)[1:]
    assert len(others) >= 4
    for place, question in zip(PLACES, moved, strict=True):
        found = documents(question.context)
        number = 1 + sum(place * len(others) > i + 0.5 for i in range(len(others)))
        assert abs(found.index(gold) + 1 - number) <= (place not in (0, 0.5, 1) or place == 0.5)
        assert [text for text in found if text != gold] == others
        assert (question.before, question.after, question.answer, question.golds) == (
            first.before, first.after, first.answer, first.golds)
        assert question.sources(question.asked[0]) == [found.index(gold) + 1]
        assert question.support[0] in gold and question.golds[0] in gold
        assert words(question.prompt) <= 260
    assert documents(moved[-1].context)[-1] == gold


def test_too_short_says_what_would_do():
    with pytest.raises(TooShort) as error:
        document_question_at(Chronicle("test"), 20, words, PLACES)
    assert document_question_at(Chronicle("test"), error.value.least, words, PLACES)
