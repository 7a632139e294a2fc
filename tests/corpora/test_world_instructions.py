"""Short instructions: right answers, recomputed from the prompt."""

import re
from collections import defaultdict

import pytest

from rmutils.corpora.world import World
from rmutils.corpora.world import lexicon as words
from rmutils.corpora.world.knowledge import KINDS, TOPICS, instruction, words_of
from tests.corpora.reader import fact_of, facts_in, questions_in, sentences

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
    assert several > 8


def test_report_leaves_others_out():
    for split in SPLITS:
        for sample in draw("report", split):
            subject = re.search(r"about ((?:the )?[A-Z]\w+(?: \w+)?)[.?]", sample.prompt)[1]
            answers = [fact_of(text) for text in sentences(sample.answer)]
            assert answers == [f for f in facts_in(sample.prompt) if f[0] == subject]


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


def test_listing():
    for sample in draw("listing"):
        count, many = sample.prompt.rstrip(".?").split()[-2:]
        named = sample.answer.split(" are ")[0].replace(" and ", ", ").split(", ")
        assert len(set(named)) == len(named) == words.COUNT.index(count) + 1
        assert {n.lower() for n in named} <= TOPICS[many]


@pytest.mark.parametrize("kind", KINDS)
def test_splits_share_no_prompt(kind):
    train, held_out = ({s.prompt for s in draw(kind, split, 100)} for split in SPLITS)
    assert not train & held_out
