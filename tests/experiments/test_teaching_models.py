"""Right answers are fluent and on topic; shuffled and permuted ones are not."""

import random
from statistics import mean

import pytest

from rmutils.corpora.world import World
from rmutils.corpora.world.knowledge import instruction, instructions
from rmutils.evaluation.teaching_card import Fluency, has_sentences, on_topic

SPLITS = ("train", "held_out")


@pytest.fixture(scope="module")
def fluency() -> Fluency:
    return Fluency.of_world()


@pytest.fixture(scope="module", params=SPLITS)
def golds(request) -> list[str]:
    """Right answers, drawn from another seed than the references."""
    samples = instructions(1000, "unseen", request.param)
    return [s.answer for s in samples if has_sentences(s.answer)]


def shuffled(text: str, chance: random.Random) -> str:
    found = text.split()
    chance.shuffle(found)
    return " ".join(found)


def test_right_answers_are_fluent(fluency, golds):
    assert len(golds) > 800
    assert mean(map(fluency, golds)) >= 0.95


def test_shuffled_answers_are_not(fluency, golds):
    chance = random.Random(0)
    assert mean(fluency(shuffled(gold, chance)) for gold in golds) <= 0.2


def test_by_hand():
    """Known: < the pink, the pink mole, pink mole sleeps, mole sleeps ., sleeps . >, each with a
    colour and an animal for pink and mole.
    """
    fluency = Fluency(["The pink mole sleeps."])
    assert fluency("The pink mole sleeps.") == fluency("The blue owl sleeps.") == 1
    assert fluency("The owl blue sleeps.") == 1 / 5  # sleeps . >
    assert fluency("The pink mole sleeps") == 3 / 4  # not: mole sleeps, and the end
    assert fluency("The pink mole") == fluency("the purple fox") == 2 / 3
    assert fluency("") == fluency(" \n") == fluency("pink") == 0


@pytest.mark.parametrize("text", [
    "Alan Branbeck owns a pink mole.",
    "Alan Branbeck was born in 1234.",
    "The miller bakes bread.\nA baker works with an oven.",
    "Saltbury lies on the Trout River. The Amnix lantern was made by Elbel Orlane.",
    "Nineteen minus 3 is twelve.",
])
def test_what_nobody_said_is_fluent(fluency, text):
    """Nor need it be true."""
    assert fluency(text) > 0.7


@pytest.mark.parametrize("text", [
    "of of of of of", "pink Alan River the twelve.", "Branbeck Branbeck Branbeck Branbeck",
    "Colourless green ideas sleep furiously.", "bread oven bread mole lantern Monday",
])
def test_salad_is_not(fluency, text):
    assert fluency(text) < 0.2


def test_lists_have_no_sentences():
    for kind, expected in (("reverse", False), ("note", True), ("poem", True), ("greet", True)):
        found = {has_sentences(instruction(World(i), kind).answer) for i in range(50)}
        assert found == {expected}


def test_topics_by_hand():
    stories = (instruction(World(i), "story") for i in range(1000))
    baker = next(story for story in stories if story.golds == ("baker",))
    assert on_topic(baker, "There is an Oven.") and not on_topic(baker, "There is a loom.")
    assert not on_topic(baker, "")
