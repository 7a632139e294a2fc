"""One interface to all sources of instructions; what is dropped is counted."""

import json

import pytest

from rmutils.core.errors import UserError
from rmutils.corpora.world.knowledge import instructions
from rmutils.preference import instructions as drawing
from rmutils.preference.instructions import (
    MAX_CHARACTERS,
    SOURCES,
    Instruction,
    draw,
    draw_stored,
    sieve,
)


def texts(drawn) -> list[str]:
    return [instruction.text for instruction in drawn.instructions]


def write(path, *records) -> str:
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), "utf-8")
    return str(path)


def test_world():
    drawn = draw("world", 30, seed=7)
    assert texts(drawn) == [sample.prompt for sample in instructions(30, 7)]
    assert drawn.dropped == {} and drawn == draw("world", 30, seed=7)
    assert set(texts(drawn)) != set(texts(draw("world", 30, seed=8)))


def test_ids_are_of_the_text(tmp_path):
    """The same in every source, other for another text."""
    drawn = draw("world", 30)
    path = write(tmp_path / "own.jsonl", *({"prompt": text} for text in texts(drawn)))
    assert set(draw(path, 30).instructions) == set(drawn.instructions)
    assert len({instruction.id for instruction in drawn.instructions}) == 30


CHAT = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "What is a newt?"},
        {"role": "assistant", "content": "An animal."}, {"role": "user", "content": "Thanks!"}]


def test_jsonl_forms(tmp_path):
    """Text or chat, of which the first user turn counts; U+2028 is no end of a line."""
    song = "Sing.\u2028Loud!"
    path = write(tmp_path / "own.jsonl", {"instruction": f" {song} ", "prompt": song},
                 {"prompt": "Dance.", "note": 1}, {"messages": CHAT},
                 {"conversation": [*CHAT[:1], *CHAT[3:]]}, {"prompt": CHAT[3:] + CHAT[:2]})
    with open(path, "a", encoding="utf-8") as file:
        file.write("\n  \n")
    with pytest.raises(UserError, match="5 instructions are wanted, but only 4 are left of 5 "
                                        r"\(dropped: 1 duplicate\)"):
        draw(path, 5)
    assert set(texts(draw(path, 4))) == {"Sing.\u2028Loud!", "Dance.", "What is a newt?", "Thanks!"}


@pytest.mark.parametrize("record", [
    {"instruction": "Translate.", "input": "Guten Tag"},  # as in Alpaca
    {"prompt": "Sing.", "messages": [{"role": "user", "content": "Dance."}]},
    {"prompt": "Sing.", "redacted": "false"}])
def test_nothing_of_a_record_is_dropped(tmp_path, record):
    path = write(tmp_path / "own.jsonl", {"prompt": "Count."}, record)
    with pytest.raises(UserError, match="line 2: (which text is the instruction|expected)"):
        draw(str(path), 1)


def test_jsonl_seed(tmp_path):
    path = write(tmp_path / "own.jsonl", *({"prompt": f"Count to {i}."} for i in range(40)))
    one, same, other = (texts(draw(path, 20, seed=seed)) for seed in (1, 1, 2))
    assert one == same and set(one) != set(other)
    assert set(texts(draw(path, 40, seed=1))) == {f"Count to {i}." for i in range(40)}


@pytest.mark.parametrize("line", [
    "{", "5", '"instruction"', "[1]", "{}", '{"text": "a"}', '{"prompt": 5}', '{"prompt": null}',
    '{"messages": [{"content": "a"}]}', '{"messages": ["a"]}', '{"messages": {"role": "user"}}',
    '{"messages": [{"role": "user", "content": [{"type": "image"}]}]}',
])
def test_bad_lines_are_told(tmp_path, line):
    path = tmp_path / "own.jsonl"
    path.write_text(f'{{"prompt": "a"}}\n\n{line}\n{{"prompt": "b"}}\n')
    with pytest.raises(UserError, match=r'own.jsonl, line 3: expected .*"instruction" or "prompt"'):
        draw(str(path), 1)


def test_unreadable_files(tmp_path):
    with pytest.raises(UserError, match=r"none.jsonl cannot be read: No such file"):
        draw(str(tmp_path / "none.jsonl"), 1)
    (tmp_path / "own.jsonl").write_bytes(b'{"prompt": "Caf\xe9"}')
    with pytest.raises(UserError, match=r"own.jsonl is not UTF-8 \(byte 15\)"):
        draw(str(tmp_path / "own.jsonl"), 1)
    (tmp_path / "own.jsonl").write_text("")
    with pytest.raises(UserError, match=r"only 0 are left of 0 \(dropped: none\)"):
        draw(str(tmp_path / "own.jsonl"), 1)


def test_sieve_counts_every_candidate():
    """By hand: each candidate is kept or counted under one reason; those behind are not looked at.
    """
    long = "x" * MAX_CHARACTERS
    candidates = [
        ("Tell a story.", None), ("", None), (" \n", None), ("A poem, please.", "toxic"),
        (" tell  A story. ", None), (long + "x", None), (long, None), ("Ask NAME_1.", None),
        ("Greet <PRESIDIO_ANONYMIZED_PERSON>.", None), ("Write to ann@example.org.", None),
        ("Write to ann@example.org.", "redacted"), ("A poem, please. ", None), ("", None),
    ]
    drawn = sieve(iter(candidates), 3, "list")
    assert texts(drawn) == ["Tell a story.", long, "A poem, please."]
    assert drawn.dropped == {"empty": 2, "toxic": 1, "duplicate": 1, "too long": 1, "redacted": 3,
                             "pii": 1}
    assert drawn.instructions[0] == Instruction.of("Tell a story.")


def test_redacted_lines_of_an_export(tmp_path):
    path = write(tmp_path / "own.jsonl", {"conversation": CHAT, "redacted": True},
                 {"conversation": CHAT[3:], "redacted": False})
    with pytest.raises(UserError, match="dropped: 1 redacted"):
        draw(path, 2)


def test_unknown_source():
    with pytest.raises(UserError, match=r"'nothing'.*world, self, lmsys, wildchat, guru\. Or give"):
        draw("nothing", 1)
    assert list(SOURCES) == ["world", "self", "lmsys", "wildchat", "guru"]


def test_self_needs_a_model():
    with pytest.raises(UserError, match='"self" needs a model'):
        draw("self", 1)


def test_own_instructions_are_written_once(llama, monkeypatch):
    turns = [("Name a fish.", None), ("Hi", "too short"), ("Name a fish.", None),
             ("Name a tree.", None), ("Name a bird.", None)]
    monkeypatch.setattr(drawing, "synthesize", lambda *args: iter(turns))
    drawn, (artifact,) = draw_stored("self", 2, seed=0, lm=llama)
    assert [i.text for i in drawn.instructions] == ["Name a fish.", "Name a tree."]
    assert drawn.dropped == {"too short": 1, "duplicate": 1}
    assert artifact.manifest["facts"] == {"instructions": 2, "dropped": drawn.dropped}
    turns.clear()
    assert draw_stored("self", 2, seed=0, lm=llama) == (drawn, (artifact,))
    with pytest.raises(Exception, match="2 instructions are wanted"):
        draw_stored("self", 2, seed=1, lm=llama)


def test_the_world_is_not_kept(llama):
    drawn, kept = draw_stored("world", 5, seed=3, lm=llama)
    assert drawn == draw("world", 5, seed=3) and kept == ()
