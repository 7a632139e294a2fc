"""CWE and REX against counts and searches that know nothing of how the texts were made."""

import math
import re
from collections import Counter

import pytest

from rmutils.corpora.world.lexicon import OF_KIND
from rmutils.corpora.world.samples import padding, paragraphs
from rmutils.corpora.world.writing import Chronicle
from rmutils.longcontext.synthetic import (
    FORMATS,
    SNIPPETS,
    TfIdf,
    common_words,
    cwe,
    name_counts,
    noun_counts,
    rex,
    sections,
    snippets,
)


def words(text):
    return len(text.split())


def written(seed, size=900, split="train"):
    world = Chronicle(seed, split)
    return world, paragraphs(padding(world, size, words))


OTHERS = [written(f"other {i}")[1] for i in range(8)]
NOUNS, NAMES = TfIdf(OTHERS, noun_counts), TfIdf(OTHERS, name_counts)


def sentences(text):
    return [s for s in re.split(r"(?<=\.)\s+", text) if s]


@pytest.mark.parametrize("split", ["train", "held_out"])
def test_words_are_counted_as_a_reader_would(split):
    for seed in range(4):
        world, text = written(seed, split=split)
        spoken = "".join(c if c.isalnum() else " " for c in text.lower()).split()
        samples = cwe(world, text, NOUNS)
        assert len(samples) == 5
        for sample in samples:
            n, = map(int, sample.golds)
            word = re.search(r"The word (\w+) occurs exactly (\d+) times\.", sample.answer)
            assert spoken.count(word[1]) == n == int(word[2]) > 1
            assert f" {word[1]}" in sample.prompt


def test_nouns_that_mark_a_text_by_hand():
    """`key` in one of three texts, `bell` in all: counts 2 and 9, weights ln 2 and 0."""
    marks = TfIdf(["a key and a bell", "a bell", "one bell"], noun_counts)
    assert marks.weight("key") == pytest.approx(math.log(4 / 2)) and marks.weight("bell") == 0
    assert common_words("key Key keys " + "bell " * 9, marks, 2) == {"key": 2, "bell": 9}
    assert common_words("lamp ring coin coin", marks) == {"coin": 2}


def test_sections_keep_every_sentence_in_its_order():
    world = Chronicle(3, "train")
    lines = padding(world, 6000, words)
    parts = list(sections(world, lines, words, (300, 900)))
    together = [line for part in parts for line in part]
    assert together == lines[:len(together)] and len(parts) > 4
    assert sum(map(words, lines[len(together):])) < 300
    sizes = [sum(map(words, part)) for part in parts]
    assert max(sizes) <= 900 and min(sizes[:-1]) > 300 - 40 and len({*sizes}) > 3
    exact = [sum(map(words, part)) for part in sections(world, lines, words, (300, 300))]
    assert len(exact) > 10 and max(exact) <= 300


@pytest.mark.parametrize("form", FORMATS)
def test_every_form_retells_all_that_is_said(form):
    world, text = written(7)
    sample = rex(world, text, NAMES, form)
    phrase = max(name_counts(text), key=lambda p: (NAMES.weight(p) * name_counts(text)[p]
                                                   if name_counts(text)[p] > 1 else 0))
    holding = [s for s in sentences(text) if phrase.lower() in s.lower()]
    assert len(holding) > 1 and list(sample.support) == holding
    assert phrase in sample.prompt
    if form != "true or false":
        assert all(gold in sample.answer for gold in sample.golds)
    if form in ("debate", "movie scene"):
        assert all(told in sample.answer for told in sample.support)


def test_what_is_called_false_is_false():
    """Each claim is one of the text's facts, or has another value than the fact it was made of."""
    said = Counter()
    for seed in range(12):
        world, text = written(f"claims {seed}")
        sample = rex(world, text, NAMES, "true or false")
        for line, point in zip(sample.answer.splitlines(), sample.key_points, strict=True):
            claim, verdict = line.rsplit(" ", 1)
            assert verdict == ("True." if claim == point else "False.")
            said[verdict] += 1
    assert min(said["True."], said["False."]) > 5


def test_eight_snippets_at_most():
    world = Chronicle("many", "train")
    name = world.entity("person")
    facts = [world.fact(name, relation.name) for relation in OF_KIND["person"]]
    told = [world.tell(fact) for fact in facts]
    text = paragraphs([*told, world.tell(world.new_fact("river"))])
    found = snippets(world, name, text)
    assert len(told) > SNIPPETS == len(found)
    places = [told.index(one.told) for one in found]
    assert places == sorted(places) and len({*places}) == SNIPPETS
