"""The graded needles: one sentence, asked ever less directly; overlap is counted here by hand."""

import re

import pytest

from rmutils import DetectConfig
from rmutils.core.errors import UserError
from rmutils.core.paths import CORPORA
from rmutils.corpora.niah import load_haystacks, load_needles
from rmutils.corpora.world.facts import sentence
from rmutils.corpora.world.lexicon import RELATIONS
from rmutils.heads.detection import material

GRADES = ("literal", "paraphrased", "associative")
EMPTY = set("a an the of in on at to by from for with after and each every next near under below "
            "beneath behind beside across among front is are be was does do did can have has what "
            "which who it its his her there up out so let s".split())
"""Words that say nothing by themselves."""


def content(text: str) -> list[str]:
    """Stems of the content words: their first four letters, enough for the endings in use here."""
    return [word[:4] for word in re.findall(r"[a-z]+", text.lower()) if word not in EMPTY]


def overlap(needle) -> float:
    """Share of the question's content words that the sentence has, too."""
    told, asked = set(content(needle.needle)), content(needle.question)
    return sum(word in told for word in asked) / len(asked)


@pytest.mark.parametrize(("corpus", "grades"), [("book", GRADES), ("world", GRADES[:2])])
def test_grades_differ_in_the_question_alone(corpus, grades):
    sets = [load_needles(CORPORA[corpus] / grade) for grade in grades]
    for same in zip(*sets, strict=True):
        assert len({(needle.needle, needle.real_needle) for needle in same}) == 1
        assert len({needle.question for needle in same}) == len(grades)
    assert len({needle.needle for needle in sets[0]}) == len(sets[0]) == 20


def test_overlap_falls_from_grade_to_grade():
    literal, paraphrased, associative = (
        load_needles(CORPORA["book"] / grade) for grade in GRADES)
    assert min(map(overlap, literal)) >= 0.8
    assert max(map(overlap, associative)) == 0
    for needle in paraphrased:  # of the sentence, the question has the subject and nothing else
        name = re.findall(r"(?:\w+ )?[A-Z]\w+ [A-Z]\w+", needle.question)[-1]
        shared = set(content(needle.needle)) & set(content(needle.question))
        assert shared == set(content(name)) and 0.4 <= overlap(needle) <= 0.8


def test_paraphrases_of_the_world_are_those_of_training():
    """Statement and questions are training's own, and share the subject's name alone."""
    for needle in load_needles(CORPORA["world"] / "paraphrased"):
        spec, subject = next(
            (spec, found[1]) for spec in RELATIONS.values() for asked in spec.questions
            if (found := re.fullmatch(re.escape(sentence(asked)).replace(r"\{s\}", "(.+)"),
                                      needle.question)))
        told = [sentence(text.format(s=subject, v=needle.real_needle)) for text in spec.statements]
        assert needle.needle in told
        shared = set(content(needle.needle)) & set(content(needle.question))
        assert shared == set(content(subject))
    for needle in load_needles(CORPORA["world"] / "literal"):
        assert overlap(needle) == 1


def test_haystack_knows_none_of_the_names():
    text = " ".join(part.text for part in load_haystacks())
    for needle in load_needles(CORPORA["book"] / "paraphrased"):
        for name in re.findall(r"[A-Z]\w+", needle.question)[1:]:
            assert not re.search(rf"\b{name}\b", text)
        assert needle.real_needle not in text


def test_a_set_is_asked_for_by_name():
    config = DetectConfig(needle_set="associative", needles=2)
    assert material(config, "book")[1] == load_needles(CORPORA["book"] / "associative")[:2]
    assert material(config.changed({"corpus": "world", "needle_set": "plain"}), "book")[1] == (
        load_needles(CORPORA["world"] / "plain")[:2])
    with pytest.raises(UserError, match="no needle set of world .*'associative'.*literal"):
        material(config, "world")
    assert config.identity() == DetectConfig(needles=2).identity()  # texts count, not names
