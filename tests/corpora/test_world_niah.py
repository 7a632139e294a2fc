"""The world's haystacks and needles: as generated, held out, long enough, and with one answer."""

import re

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from rmutils.core.paths import CORPORA
from rmutils.corpora.niah import load_haystacks, load_needles
from rmutils.corpora.world import World
from rmutils.corpora.world.facts import values
from rmutils.corpora.world.lexicon import FILLERS, NEW_ASKED, NEW_TOLD, RELATIONS, names
from rmutils.corpora.world.samples import padding, paragraphs
from rmutils.corpora.world.tasks import ASKED, COUNT, SETS, write_held_out
from tests.corpora.reader import STARTS, fact_of, facts_in, questions_in, sentences

HAYSTACKS = load_haystacks(CORPORA["world"] / "haystack")
REWORDED = load_needles(CORPORA["world"] / "reworded")
NEEDLES = load_needles(CORPORA["world"] / "needles")
PLAIN = load_needles(CORPORA["world"] / "plain")
PAIRS = pytest.mark.parametrize("index", range(COUNT))


def test_shipped_files_are_those_of_the_generator(tmp_path):
    """If they differ after a change of the world's words: `tasks.write_held_out()`."""
    write_held_out(tmp_path)
    made = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*.*")}
    shipped = {p.relative_to(CORPORA["world"]): p.read_bytes()
               for p in CORPORA["world"].rglob("*.*") if p.suffix != ".yaml"}
    assert made == shipped and len(made) == COUNT + len(SETS)


@PAIRS
def test_needle_is_held_out(index):
    """Frames, value and names are none that training has; it is answered by the value."""
    needle = NEEDLES[index]
    subject, relation, value = fact_of(needle.needle)
    assert relation == ASKED[index % len(ASKED)]
    assert needle.real_needle == value and len(value.split()) >= 3
    assert value not in values(RELATIONS[relation].value, "train")
    assert questions_in(needle.question) == [(subject, relation)]
    for text, frames in ((needle.needle, NEW_TOLD), (needle.question, NEW_ASKED)):
        assert text.startswith(tuple(frame.removesuffix("{}") for frame in frames))
    known = {name for kind in ("first", "last", "title") for name in names(kind, "train")}
    assert not known & set(re.findall(r"[A-Z]\w+", subject))


@PAIRS
def test_plain_question_is_the_same_without_its_frame(index):
    needle, plain = NEEDLES[index], PLAIN[index]
    assert (plain.needle, plain.real_needle) == (needle.needle, needle.real_needle)
    assert needle.question.endswith(f". {plain.question}") and "." not in plain.question


@PAIRS
def test_reworded_needle_says_the_same(index):
    """Same subject and value as the needle, in words that no statement or question has."""
    reworded = REWORDED[index]
    subject, relation, value = fact_of(NEEDLES[index].needle)
    noun = RELATIONS[relation].noun.format(s=subject)
    assert reworded.real_needle == value
    assert noun in reworded.needle and noun in reworded.question
    assert reworded.needle.endswith(f" {value}.") and value not in reworded.question
    assert not fact_of(reworded.needle) and not questions_in(reworded.question)
    assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", reworded.needle)


@PAIRS
def test_haystack_answers_nothing(index):
    """It knows no such subject, holds no such value, and tells this relation of nobody."""
    text, (subject, relation, value) = HAYSTACKS[index].text, fact_of(NEEDLES[index].needle)
    assert subject.lower() not in text.lower() and value not in text
    assert {r for _, r, _ in facts_in(text)} == RELATIONS.keys() - {relation}


def test_haystacks_are_plain_prose_of_held_out_names_and_frames():
    places = names("place", "train")
    for haystack in HAYSTACKS:
        assert re.fullmatch(r"[A-Za-z0-9 .,\n]+", haystack.text)
        assert not set(places) & set(re.findall(r"[A-Z]\w+", haystack.text))
        assert all(fact_of(line) or line in FILLERS for line in sentences(haystack.text))
        assert not any(start in haystack.text for start in STARTS["train"])
        blocks = haystack.text.split("\n\n")
        assert {len(re.findall(r"\.(?: |$)", block)) for block in blocks[:-1]} == {6}


def test_haystacks_are_long_enough():
    """4,096 tokens of a tokenizer of 2,000 entries made for the world that training sees."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=2000, show_progress=False)
    inner.train_from_iterator([paragraphs(padding(World(i), 20_000, len)) for i in range(10)],
                              trainer)
    assert min(len(inner.encode(h.text).ids) for h in HAYSTACKS) > 4096
