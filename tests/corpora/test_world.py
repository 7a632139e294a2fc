"""The invented world: what may be said of it, and that the two splits share nothing."""

import re

import pytest

from rmutils.corpora.world import Fact, World
from rmutils.corpora.world.facts import sentence, values
from rmutils.corpora.world.lexicon import ASKED, HOPS, RELATIONS, TOLD, names

SPLITS = ("train", "held_out")
CLOSED = {"trade", "instrument", "river", "day", "month"}
ENTITIES = {"person", "place", "object", "event"}
OPEN = {r.value for r in RELATIONS.values()} - CLOSED - ENTITIES


def story(seed: int, split: str = "train", count: int = 60) -> list[str]:
    """Facts told and asked for."""
    world = World(seed, split)
    facts = [world.new_fact() for _ in range(count)]
    return [text for fact in facts for text in (world.tell(fact), world.ask(fact))]


@pytest.mark.parametrize("kind", ["first", "last", "place", "title"])
def test_splits_share_no_name(kind):
    train, held_out = (set(names(kind, split)) for split in SPLITS)
    assert not train & held_out
    assert 0.15 < len(held_out) / len(train | held_out) < 0.35


@pytest.mark.parametrize("kind", sorted(OPEN))
def test_splits_share_no_phrase(kind):
    train, held_out = (set(values(kind, split)) for split in SPLITS)
    assert not train & held_out
    assert 0.15 < len(held_out) / len(train | held_out) < 0.35


def test_splits_share_no_frame_but_the_plain_one():
    for frames in (TOLD, ASKED):
        train, held_out = (set(frames[split]) for split in SPLITS)
        assert train & held_out == {"{}"} and len(train) > 1 and len(held_out) > 1


def test_facts_never_change():
    world = World("facts")
    first = [world.new_fact() for _ in range(50)]
    before = dict(world.facts)
    for _ in range(200):
        world.new_fact()
    assert {key: world.facts[key] for key in before} == before
    assert [world.fact(f.subject, f.relation) for f in first] == first
    assert len(world.facts) == len({(f.subject, f.relation) for f in world.facts.values()})


def test_articles():
    """`a` before a consonant, `an` before a vowel."""
    assert Fact("Mira Dorwick", "pet", "orange owl").answer == "Mira Dorwick owns an orange owl."
    assert Fact("the Ambor bell", "maker", "Mira Dorwick").answer == (
        "The Ambor bell was made by Mira Dorwick.")
    reworded = RELATIONS["pet"].reworded.format(s="Mira Dorwick", v="orange owl")
    assert sentence(reworded) == (
        "When people speak of the pet of Mira Dorwick, they mean an orange owl.")
    assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", " ".join(story(6, count=400)))


@pytest.mark.parametrize("avoid", [
    {"home", "mayor", "maker", "host"},
    *({r.name for r in RELATIONS.values() if r.subject == kind} for kind in ("person", "place")),
], ids=["some", "all of persons", "all of places"])
def test_facts_to_avoid_are_not_told(avoid):
    world = World(9)
    told = {world.new_fact(avoid=avoid).relation for _ in range(400)}
    assert told == set(RELATIONS) - avoid


def test_hops_meet():
    """Two facts can be chained just where the first one's value is a subject of the second."""
    meeting = {(a.name, b.name) for a in RELATIONS.values() for b in RELATIONS.values()
               if a.value == b.subject}
    assert {(a.name, b.name) for a, b in HOPS} == meeting and len(HOPS) == len(meeting)
    assert ("mentor", "home") in meeting and ("home", "trade") not in meeting
    world = World(10)
    for a, b in HOPS:
        first = world.new_fact(a.name)
        assert world.kinds[first.value] == b.subject
        assert world.fact(first.value, b.name).subject == first.value
