"""The haystack and the needles that ship with the project: long enough, and no help or trap."""

import re
from itertools import combinations

import pytest

from rmutils.corpora.niah import load_haystacks, load_needles

PARTS = load_haystacks()
NEEDLES = load_needles()
TITLES = {"Captain", "Professor", "Society", "Medal", "Aunt"}
"""Words that needles write with a capital and that are no names."""


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def grams(text: str, n: int) -> set[tuple[str, ...]]:
    found = words(text)
    return {tuple(found[i : i + n]) for i in range(len(found) - n + 1)}


def paragraphs() -> list[str]:
    return [p for part in PARTS for p in part.text.split("\n\n")]


def test_three_parts_are_long_enough(smollm):
    sizes = [len(smollm.tokenizer(part.text, verbose=False)["input_ids"]) for part in PARTS]
    assert len(sizes) == 3 and min(sizes) >= 8192, sizes


def test_no_two_paragraphs_are_alike():
    """Two paragraphs share hardly any five words in a row."""
    sets = [grams(p, 5) for p in paragraphs()]
    shared = {len(a & b) / min(len(a), len(b)) for a, b in combinations(sets, 2) if a and b}
    assert len(sets) > 100 and max(shared) < 0.1


def test_twelve_needles_in_three_fields():
    assert len(NEEDLES) >= 12
    assert len({n.needle for n in NEEDLES}) == len({n.question for n in NEEDLES}) == len(NEEDLES)
    for needle in NEEDLES:
        assert needle.real_needle in needle.needle and needle.question.endswith("?")
        assert needle.real_needle not in needle.question


@pytest.mark.parametrize("needle", NEEDLES, ids=lambda n: n.real_needle[:20])
def test_haystack_answers_no_question(needle):
    """It holds none of the needle's invented names, nor any four words of an answer in a row."""
    text = " ".join(part.text for part in PARTS)
    names = set(re.findall(r"(?<=[a-z,'] )[A-Z][a-z]+", needle.needle)) - TITLES
    assert names and not {name for name in names if re.search(rf"\b{name}\b", text)}
    assert not grams(needle.real_needle, 4) & grams(text, 4)
