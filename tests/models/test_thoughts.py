"""What is left of a response behind its thoughts."""

import pytest

from rmutils.models.language_model import without_thoughts


@pytest.mark.parametrize(("response", "answer"), [
    ("<think>\nIs it 3?\n</think>\n\n4", "4"),
    ("<think>Is it 3", ""),
    ("Is it 3? No.</think> 4", "4"),  # its beginning stands in the prompt
    ("No.</think> 4 <think>or 5?</think> indeed", "4  indeed"),
    ("4 <think>or 5?</think> indeed", "4  indeed"),
    (" 4 ", "4"),
])
def test_only_the_answer_is_left(response, answer):
    assert without_thoughts(response) == answer
