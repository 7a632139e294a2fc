"""The invented world: what may be said of it, and that the two splits share nothing."""

import re
from collections import defaultdict
from itertools import combinations

import pytest

from rmutils.core.paths import CORPORA
from rmutils.corpora.niah import load_haystacks, load_needles
from rmutils.corpora.world import Fact, World
from rmutils.corpora.world.document_questions import document_question_at
from rmutils.corpora.world.facts import sentence, values
from rmutils.corpora.world.knowledge import KINDS, instruction
from rmutils.corpora.world.lexicon import ASKED, HOPS, RELATIONS, TOLD, names
from rmutils.corpora.world.samples import TooShort
from rmutils.corpora.world.tasks import COUNT, SETS, write_held_out
from rmutils.corpora.world.writing import Chronicle
from tests.corpora.reader import fact_of, facts_in, questions_in

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


HAYSTACKS = load_haystacks(CORPORA["world"] / "haystack")
NEEDLES = load_needles(CORPORA["world"] / "needles")


def test_shipped_files_are_those_of_the_generator(tmp_path):
    """If they differ after a change of the world's words: `tasks.write_held_out()`."""
    write_held_out(tmp_path)
    made = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*.*")}
    assert made == {name: (CORPORA["world"] / name).read_bytes() for name in made}
    assert len(made) == COUNT + len(SETS) + 1  # the last: further needles


@pytest.mark.parametrize("index", range(COUNT))
def test_haystack_answers_nothing(index):
    """It knows no such subject, holds no such value, and tells this relation of nobody."""
    text, (subject, relation, value) = HAYSTACKS[index].text, fact_of(NEEDLES[index].needle)
    assert subject.lower() not in text.lower() and value not in text
    assert {r for _, r, _ in facts_in(text)} == RELATIONS.keys() - {relation}


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


def test_no_two_paragraphs_are_alike():
    """Two paragraphs share hardly any five words in a row."""
    texts = [re.findall(r"\w+", text.lower()) for part in load_haystacks()
             for text in part.text.split("\n\n")]
    sets = [{tuple(text[i : i + 5]) for i in range(len(text) - 4)} for text in texts]
    shared = {len(a & b) / min(len(a), len(b)) for a, b in combinations(sets, 2) if a and b}
    assert len(sets) > 100 and max(shared) < 0.1
