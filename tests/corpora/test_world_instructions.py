"""Short instructions: right answers, recomputed from the prompt."""

import re
from collections import defaultdict

import pytest

from rmutils.corpora.world import World
from rmutils.corpora.world.knowledge import KINDS, instruction
from tests.corpora.reader import facts_in, questions_in

SPLITS = ("train", "held_out")


DRAWN = defaultdict(list)


def draw(kind: str, split: str = "train", count: int = 40) -> list:
    """Samples of one kind; they are made once for all tests."""
    found = DRAWN[kind, split]
    found += [instruction(World(i, split), kind) for i in range(len(found), count)]
    return found[:count]


def held(gold: str, text: str) -> bool:
    """Whether the text holds the gold, whatever the case of its first letter."""
    return gold.lower() in text.lower()


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("kind", KINDS)
def test_form(kind, split):
    for sample in draw(kind, split):
        assert sample.kind == kind
        assert sample.prompt == sample.before and not sample.context
        assert sample.golds and all(held(gold, sample.answer) for gold in sample.golds)
        assert all(sentence in sample.prompt for sentence in sample.support)
        for text in (sample.prompt, sample.answer):
            assert not re.search(r"[{}]|  |\.\.|\ba [aeiou]|\ban [^aeiou]|^ | $", text), text


def test_the_answered_fact_is_given_once():
    for split in SPLITS:
        for kind in ("look_up", "chain", "complete"):
            for sample in draw(kind, split):
                asked = facts_in(sample.thinking)[-1]
                assert asked[2] == sample.golds[0]
                assert [f for f in facts_in(sample.prompt) if f[:2] == asked[:2]] == [asked]
                assert questions_in(sample.prompt) == [asked[:2]] * (kind == "look_up")


@pytest.mark.parametrize("kind", KINDS)
def test_splits_share_no_prompt(kind):
    train, held_out = ({s.prompt for s in draw(kind, split, 100)} for split in SPLITS)
    assert not train & held_out
