"""Short instructions: right answers, recomputed from the prompt, and no leak between splits."""

import re
from collections import Counter, defaultdict

import pytest

from rmutils.corpora.world import World
from rmutils.corpora.world import lexicon as words
from rmutils.corpora.world.facts import values
from rmutils.corpora.world.knowledge import (
    KINDS,
    ON_TOPIC,
    TOPICS,
    instruction,
    instructions,
    topic_words,
    words_of,
)
from rmutils.corpora.world.lexicon import names
from tests.corpora.reader import STARTS, fact_of, facts_in, questions_in, sentences

SPLITS = ("train", "held_out")


DRAWN = defaultdict(list)


def draw(kind: str, split: str = "train", count: int = 150) -> list:
    """Samples of one kind; they are made once for all tests."""
    found = DRAWN[kind, split]
    found += [instruction(World(i, split), kind) for i in range(len(found), count)]
    return found[:count]


def held(gold: str, text: str) -> bool:
    """Whether the text holds the gold, whatever the case of its first letter."""
    return gold.lower() in text.lower()


@pytest.fixture(scope="module")
def samples() -> dict[str, list]:
    return {split: instructions(2000, 1, split) for split in SPLITS}


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


def test_prompts_differ_and_all_kinds_come(samples):
    for found in samples.values():
        assert len({s.prompt for s in found}) == len(found) == 2000
        assert {s.kind for s in found} == set(KINDS)


def test_splits_share_no_name(samples):
    """Names are words that begin with a capital letter."""
    for split, other in (SPLITS, SPLITS[::-1]):
        foreign = {n for kind in ("first", "last", "place", "title") for n in names(kind, other)}
        found = {word for s in samples[split] for text in (s.prompt, s.answer)
                 for word in re.findall(r"[A-Z]\w+", text)}
        assert not found & foreign


def test_splits_share_no_frame(samples):
    for split, other in (SPLITS, SPLITS[::-1]):
        prompts = "\n".join(s.prompt for s in samples[split])
        assert all(start in prompts for start in STARTS[split])
        assert not any(start in prompts for start in STARTS[other])


def test_splits_share_no_phrase(samples):
    """Looks at all runs of up to three words. Products are left out: "blue paper" is also the end
    of what objects are made of, and these phrases are divided as a whole.
    """
    for split, other in (SPLITS, SPLITS[::-1]):
        foreign = {v for kind in ("pet", "food", "keepsake", "year")
                   for v in values(kind, other)}
        for sample in samples[split]:
            for text in (sample.prompt, sample.answer):
                found = text.split()
                runs = {" ".join(found[i : i + n]).strip('.,?!:"').lower()
                        for n in (1, 2, 3) for i in range(len(found))}
                assert not runs & foreign, (sample.kind, runs & foreign)


@pytest.mark.parametrize("kind", KINDS)
def test_splits_share_no_prompt(kind):
    train, held_out = ({s.prompt for s in draw(kind, split, 250)} for split in SPLITS)
    assert not train & held_out


def test_the_answered_fact_is_given_once():
    for split in SPLITS:
        for kind in ("look_up", "chain", "complete"):
            for sample in draw(kind, split):
                asked = facts_in(sample.thinking)[-1]
                assert asked[2] == sample.golds[0]
                assert [f for f in facts_in(sample.prompt) if f[:2] == asked[:2]] == [asked]
                assert questions_in(sample.prompt) == [asked[:2]] * (kind == "look_up")


def test_thinking_is_the_support_in_other_words():
    for split in SPLITS:
        for kind in ("look_up", "chain", "who", "complete", "report"):
            for sample in draw(kind, split):
                thoughts = [fact_of(text) for text in sentences(sample.thinking)]
                assert thoughts == [fact_of(text) for text in sample.support] and all(thoughts)


def test_distractors_share_subject_or_relation():
    """Else a look-up would need no more than one of the two."""
    shared = Counter()
    for sample in draw("look_up"):
        asked = fact_of(sample.thinking)
        for subject, relation, _ in {*facts_in(sample.prompt)} - {asked}:
            assert (subject == asked[0]) != (relation == asked[1])
            shared[relation == asked[1]] += 1
    assert min(shared[True], shared[False]) > 50


def test_who():
    for split in SPLITS:
        for sample in draw("who", split):
            subject, *said = fact_of(sample.answer)
            given = facts_in(sample.prompt)
            assert [s for s, *other in given if other == said] == [subject] == [*sample.golds]
            assert 2 <= len(given) <= 3


def test_chains_meet():
    """The question names the first subject, and not the second, which has to be looked up."""
    for split in SPLITS:
        for sample in draw("chain", split):
            (first, _, link), (subject, _, _) = facts_in(sample.thinking)
            assert link == subject
            [question] = [text for text in sentences(sample.prompt) if not fact_of(text)
                          and text not in ("Read this:", "Here is what we know:")]
            assert first in question and link not in question


def test_reverse():
    for sample in draw("reverse"):
        given = sample.prompt.split(": ")[1].split(", ")
        assert sample.answer.split(", ") == given[::-1]


def test_quote():
    """Of several speakers, the one asked about is quoted."""
    several = 0
    for sample in draw("quote") + draw("quote", "held_out"):
        said = dict(re.findall(r'([A-Z]\w+ [A-Z]\w+) [a-z ]+: "(.+?)"', sample.prompt))
        asked = re.search(r"What did (\w+ \w+)", sample.prompt)[1]
        assert sample.golds == (said[asked],)
        several += len(said) > 1
    assert several > 30


def test_report_leaves_others_out():
    for split in SPLITS:
        lines = 0
        for sample in draw("report", split):
            subject = re.search(r"about ((?:the )?[A-Z]\w+(?: \w+)?)[.?]", sample.prompt)[1]
            answers = [fact_of(text) for text in sentences(sample.answer)]
            assert answers == [f for f in facts_in(sample.prompt) if f[0] == subject]
            lines += len(answers)
        assert lines > 300


def test_arithmetic():
    numbers = {word: i + 1 for i, word in enumerate(words.COUNT)} | {
        str(i): i for i in range(1, 21)}
    for split in SPLITS:
        for sample in draw("arithmetic", split):
            a, sign, b = re.search(r"(\w+) (plus|minus) (\w+)", sample.prompt.lower()).groups()
            right = numbers[a] + numbers[b] * (1 if sign == "plus" else -1)
            assert 1 <= right <= 20
            assert numbers[words_of(sample.answer)[-1]] == right == numbers[sample.golds[0].lower()]


def test_calendar():
    for sample in draw("calendar"):
        first, order, second = re.match(r"(\w+) comes (after|before) (\w+)\.",
                                        sample.answer).groups()
        cycle = words.MONTHS if first in words.MONTHS else words.DAYS
        step = (cycle.index(first) - cycle.index(second)) % len(cycle)
        assert step == (1 if order == "after" else len(cycle) - 1)
        assert sample.golds == (first,)


def test_categories():
    found = Counter()
    for sample in draw("category"):
        last = words_of(sample.answer.split(" is ")[0])[-1]
        right = ("food" if last in words.DISHES else "animal" if last in words.ANIMALS else "thing")
        assert sample.answer.rstrip(".").endswith(f" {right}")
        found[right] += 1
    assert min(found.values()) > 30


def test_listing():
    for sample in draw("listing"):
        count, many = sample.prompt.rstrip(".?").split()[-2:]
        named = sample.answer.split(" are ")[0].replace(" and ", ", ").split(", ")
        assert len(set(named)) == len(named) == words.COUNT.index(count) + 1
        assert {n.lower() for n in named} <= TOPICS[many]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("kind", ON_TOPIC)
def test_right_answers_are_on_topic(kind, split):
    for sample in draw(kind, split):
        assert topic_words(sample) & set(words_of(sample.answer))


def test_topics():
    assert {"baker", "bread", "oven", "bakery"} <= TOPICS["baker"]
    assert {"winter", "snow", "cold", "december"} <= TOPICS["winter"] | TOPICS["december"]
    assert "summer" not in TOPICS["january"]
    assert topic_words(instruction(World(0), "greet")) == frozenset()
    for topic, near in TOPICS.items():
        assert topic == topic.lower() and near and all(w == w.lower() for w in near)
        assert not near & {"a", "an", "the", "in", "at", "on", "and"}
    only = next(s for s in draw("story") if s.golds == ("baker",))
    assert topic_words(only) == TOPICS["baker"]
