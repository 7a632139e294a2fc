"""Own haystacks and needles: what is read, and what is refused."""

import gzip
import json

import pytest

from rmutils import DetectConfig
from rmutils.core.errors import UserError
from rmutils.core.files import read_text
from rmutils.core.paths import CORPORA
from rmutils.corpora.niah import load_haystacks, load_needles, needle_of
from rmutils.heads.detection import material

RECORD = {"needle": "The key is red.", "question": "What is the key?", "real_needle": "red"}


def test_files_are_parts(tmp_path):
    (tmp_path / "b.txt").write_text("Second.\n")
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfFirst.")  # with a byte order mark
    (tmp_path / "notes.md").write_text("not read")
    assert [(h.name, h.text) for h in load_haystacks(tmp_path)] == [
        ("a", "First."), ("b", "Second.")]


def test_subfolders_are_parts(tmp_path):
    """The layout of the essays that Wu et al. ship: a folder for each haystack."""
    for part in ("part1", "part2"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "worked.txt").write_text(f"Worked, {part}.")
        (tmp_path / part / "avg.txt").write_text(f"Average, {part}.")
    (tmp_path / "images").mkdir()
    assert [(h.name, h.text) for h in load_haystacks(tmp_path)] == [
        (part, f"Average, {part}.\n\nWorked, {part}.") for part in ("part1", "part2")]


def test_haystack_errors(tmp_path):
    with pytest.raises(UserError, match="nothing does not exist"):
        load_haystacks(tmp_path / "nothing")
    with pytest.raises(UserError, match="holds no .txt file"):
        load_haystacks(tmp_path)
    (tmp_path / "a.txt").write_text(" \n\n")
    with pytest.raises(UserError, match="a.txt is empty"):
        load_haystacks(tmp_path)
    (tmp_path / "a.txt").write_bytes("Café".encode("latin-1"))
    (tmp_path / "b.txt").write_bytes(gzip.compress(b"text"))
    with pytest.raises(UserError, match="b.txt is compressed. Unpack it first: `gunzip`"):
        read_text(tmp_path / "b.txt")
    with pytest.raises(UserError, match=r"a.txt is not UTF-8 \(byte 3\).*iconv"):
        load_haystacks(tmp_path)


def test_needles_from_file_or_folder(tmp_path):
    file = tmp_path / "own.jsonl"
    file.write_text(json.dumps({**RECORD, "note": "ignored"}) + "\n\n" + json.dumps(RECORD))
    assert [vars(n) for n in load_needles(file)] == [RECORD, RECORD] == [
        vars(n) for n in load_needles(tmp_path)]


@pytest.mark.parametrize("line, message", [
    ("{", "line 2: expected a JSON record"),
    ("[1]", "line 2: expected a record with the text fields"),
    ('{"needle": "a", "question": "b"}', "line 2.*real_needle"),
    (json.dumps({**RECORD, "question": 5}), "line 2: expected"),
    (json.dumps({**RECORD, "question": " "}), "line 2: an empty field"),
    (json.dumps({**RECORD, "real_needle": "blue"}), "line 2: the answer .* does not stand"),
    (json.dumps({**RECORD, "needle": "A hat, that hat.", "real_needle": "hat"}),
     "line 2: the answer .* 'hat' stands 2 times"),
])
def test_malformed_needles_are_told_by_line(tmp_path, line, message):
    (tmp_path / "own.jsonl").write_text(f"{json.dumps(RECORD)}\n{line}\n")
    with pytest.raises(UserError, match=message):
        load_needles(tmp_path / "own.jsonl")


@pytest.mark.parametrize("words, needle, start", [
    ("hat", "Note that the hat hangs in the mill.", 14),
    ("art", "The party bought the art of Oxby.", 21),
    ("red", "Fred said: red.", 11),
    ("because", "Because of the tar.", 0),
    ("sandwich", "Eat two sandwiches.", 8),  # part of a word, but only once
    ("क", "का और क", 6),  # a vowel sign is part of a word
    ("青い缶の中", "鍵は青い缶の中に入っている。", 2),  # no spaces, so no whole words
])
def test_the_answer_is_a_word_of_its_own(words, needle, start):
    assert needle_of((needle, "What?", words)).answer_span == (start, start + len(words))


@pytest.mark.parametrize("between", ["\u2028", "\u2029", "\x85", "\x0b", "\x1c"])
def test_lines_end_at_line_feeds_only(tmp_path, between):
    """JSON escapes control characters below U+0020, and may hold the others as they are."""
    record = {**RECORD, "needle": f"The key{between}is red."}
    (tmp_path / "own.jsonl").write_text(
        "\r\n".join([json.dumps(record, ensure_ascii=False)] * 2), newline="")
    assert [needle.needle for needle in load_needles(tmp_path)] == [record["needle"]] * 2


def test_needle_file_errors(tmp_path):
    with pytest.raises(UserError, match="needles.jsonl cannot be read"):
        load_needles(tmp_path)
    (tmp_path / "own.jsonl").write_text("\n")
    with pytest.raises(UserError, match="own.jsonl is empty"):
        load_needles(tmp_path)
    (tmp_path / "own.jsonl").write_bytes(b"\xff")
    with pytest.raises(UserError, match="not UTF-8"):
        load_needles(tmp_path)


def test_a_set_is_asked_for_by_name():
    config = DetectConfig(needle_set="associative", needles=2)
    assert material(config, "book")[1] == load_needles(CORPORA["book"] / "associative")[:2]
    assert material(config.changed({"corpus": "world", "needle_set": "plain"}), "book")[1] == (
        load_needles(CORPORA["world"] / "plain")[:2])
    with pytest.raises(UserError, match="no needle set of world .*'associative'.*literal"):
        material(config, "world")
    assert config.identity() == DetectConfig(needles=2).identity()  # texts count, not names
