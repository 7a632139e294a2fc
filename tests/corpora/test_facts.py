"""Needles for real models: the first 16 of 48 choose heads, 32 are asked; counted by hand."""

import re
from itertools import combinations

import pytest

from rmutils.core.paths import CORPORA
from rmutils.corpora.niah import load_haystacks, load_needles
from rmutils.heads.answering import answer_recall
from tests.corpora.test_graded_needles import EMPTY

BOOK = CORPORA["book"]
GRADES = ("facts-literal", "facts-paraphrased", "facts-associative")
SETS = (*GRADES, "facts-relational", "facts-distractor")
EARLIER = ("needles", "literal")
PLACES = set("Little Charles Bridge Tuesday Christmas Roman Nine".split())
"""Words with a capital that the haystack may have as well: they name no one."""
EMPTY = EMPTY | {"where", "how", "why", "when", "whom", "somebody"}


def stems(text: str) -> set[str]:
    """Content words by their first four letters, those of verbs that change within not."""
    return {word[:4] for word in re.findall(r"[a-z]+", text.lower()) if word not in EMPTY}


def names(text: str) -> set[str]:
    """Words with a capital that begin no sentence."""
    return set(re.findall(r"(?<=[a-z,'] )[A-Z][a-z]+", text))


def grams(text: str, n: int = 4) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}


def sentences(text: str) -> list[str]:
    return re.split(r"(?<=\.) ", text)


@pytest.mark.parametrize("name", SETS)
def test_an_answer_stands_once_in_its_needle_and_not_in_the_question(name):
    needles = load_needles(BOOK / name)
    assert len({n.needle for n in needles}) == len({n.question for n in needles}) == 48
    assert len({n.real_needle for n in needles}) == 48
    for needle in needles:
        assert len(re.findall(rf"\b{re.escape(needle.real_needle)}\b", needle.needle)) == 1
        assert needle.needle.count(needle.real_needle) == 1
        assert 3 <= len(needle.real_needle.split()) <= 8, needle
        assert not stems(needle.real_needle) & stems(needle.question), needle
        assert needle.question.endswith("?") and needle.needle.endswith(".")


def test_grades_share_their_sentences_and_ask_ever_less_directly():
    literal, paraphrased, associative = (load_needles(BOOK / name) for name in GRADES)
    for same in zip(literal, paraphrased, associative, strict=True):
        assert len({(needle.needle, needle.real_needle) for needle in same}) == 1
        assert len({needle.question for needle in same}) == 3
    for needle in literal:
        asked = stems(needle.question)
        assert len(asked & stems(needle.needle)) >= 0.8 * len(asked), needle
    for needle in paraphrased:  # the subject, and nothing else
        subject = re.search(r"[a-z]+ [A-Z]\w+ [A-Z]\w+", needle.question)[0]
        assert stems(needle.needle) & stems(needle.question) == stems(subject), needle
    for needle in associative:
        assert not stems(needle.needle) & stems(needle.question), needle


def test_a_relation_has_to_be_followed():
    """The sentence with the answer begins with somebody whom the question does not name."""
    for needle in load_needles(BOOK / "facts-relational"):
        *before, told = sentences(needle.needle)
        assert before and needle.real_needle in told
        subject = re.findall(r"[A-Z]\w+", told)[0 if not told.startswith(
            ("In ", "On ", "At ", "Along ", "Guests ", "The ")) else 1]
        assert subject not in needle.question and subject in " ".join(before), needle


def test_a_distractor_says_the_same_of_another():
    first = []
    for needle in load_needles(BOOK / "facts-distractor"):
        told, other = sorted(sentences(needle.needle), key=lambda s: needle.real_needle not in s)
        first.append(sentences(needle.needle)[0] == other)
        assert len(stems(told) & stems(other)) >= 2, needle
        asked = stems(needle.question)
        assert len(asked & stems(told)) > len(asked & stems(other)), needle
        assert answer_recall(needle.real_needle, other) <= 0.5, needle
    assert sum(first) == 24 and sum(first[:16]) == 8


def test_no_set_has_names_or_answers_of_another_or_of_the_haystack():
    haystack = " ".join(part.text for part in load_haystacks())
    known, told = set(re.findall(r"\b[A-Z]\w+", haystack)), grams(haystack)
    sets = [load_needles(BOOK / name) for name in (*EARLIER, "facts-literal", *SETS[3:])]
    for needles in sets[len(EARLIER):]:
        for needle in needles:
            assert not (names(needle.needle) & known) - PLACES, needle
            assert not grams(needle.real_needle) & told, needle
            assert needle.real_needle not in haystack, needle
    for a, b in combinations(sets, 2):
        persons = [{" ".join(pair) for n in part for pair in re.findall(
            r"([A-Z]\w+) ([A-Z]\w+)", n.needle)} for part in (a, b)]
        assert not persons[0] & persons[1]
        answers = [set().union(*(grams(n.real_needle) | {n.real_needle} for n in part))
                   for part in (a, b)]
        assert not answers[0] & answers[1]


def test_japanese_facts():
    needles = load_needles(CORPORA["japanese"] / "facts")
    haystack = "".join(part.text for part in load_haystacks(CORPORA["japanese"] / "haystack"))
    earlier = load_needles(CORPORA["japanese"] / "needles")
    assert len({n.needle for n in needles}) == 12
    for needle in needles:
        assert needle.needle.count(needle.real_needle) == 1
        assert needle.real_needle not in needle.question + haystack
        assert answer_recall(needle.real_needle, needle.question) <= 0.5
        assert max(answer_recall(needle.real_needle, n.needle) for n in earlier) <= 0.5
        assert needle.question.endswith("。")
