"""A model writes user turns: its own frame, its own ends, faults counted."""

import copy
import dataclasses
from collections import Counter
from itertools import islice

import pytest
import torch

from rmutils.core.errors import UserError
from rmutils.preference import sources
from rmutils.preference.instructions import draw
from rmutils.preference.sources import synthesize

TURNS = ("Sort these names, please.", "What do otters eat?", "Write a poem about rain.")


def chat_ids(lm, turn: str) -> list[int]:
    return lm.tokenizer.apply_chat_template([{"role": "user", "content": turn}],
                                            add_generation_prompt=True, return_dict=False)


@pytest.fixture
def taught(llama):
    """A model that knows three user turns by heart, and nothing else."""
    chats = [chat_ids(llama, turn) for turn in TURNS]
    longest = max(map(len, chats))
    ids = torch.tensor([chat + [0] * (longest - len(chat)) for chat in chats])
    labels = torch.tensor([chat + [-100] * (longest - len(chat)) for chat in chats])
    optimizer = torch.optim.Adam(llama.model.parameters(), lr=1e-2)
    for _ in range(150):
        loss = llama.model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return llama


def test_writes_what_it_has_read(taught, monkeypatch):
    """Each of the three turns about as often; a turn that comes again is a duplicate."""
    written = Counter(text for text, reason in synthesize(taught, 2) if not reason)
    assert sum(written[turn] for turn in TURNS) >= 36 and written.total() <= 40
    assert min(written[turn] for turn in TURNS) >= 8
    drawn = draw("self", 3, seed=1, lm=taught)
    looked_at, kept = 0, []
    for text, reason in synthesize(taught, 3, seed=1):
        looked_at += 1
        kept += [text] if not reason and text not in kept else []
        if len(kept) == 3:
            break
    assert [instruction.text for instruction in drawn.instructions] == kept
    assert sum(drawn.dropped.values()) == looked_at - 3
    monkeypatch.setattr(sources, "DRAWS", 4)
    with pytest.raises(UserError, match=r"self: 8 instructions are wanted, but only \d are left of "
                                        r"32 \(dropped: 2\d duplicate"):
        draw("self", 8, lm=taught)


def test_seed_and_batch(llama, monkeypatch):
    """A turn depends on the seed and its number, not on those that are written with it."""
    monkeypatch.setattr(sources, "MAX_NEW_TOKENS", 12)
    whole = list(islice(synthesize(llama, 1, seed=3), 16))
    monkeypatch.setattr(sources, "BATCH", {"cpu": 5})
    assert list(islice(synthesize(llama, 1, seed=3), 16)) == whole
    assert len({text for text, _ in whole}) == 16
    assert {text for text, _ in islice(synthesize(llama, 1, seed=4), 16)}.isdisjoint(
        text for text, _ in whole)


def test_goes_on_where_it_was_stopped(llama, written, tmp_path):
    """Turns of the journal are not written again, and come in their place."""
    rows, asked = written
    encode = llama.tokenizer.encode
    said = [f"Tell me of the river number {n}." for n in "abcdefgh"]
    rows += map(encode, said)
    first = list(islice(synthesize(llama, 2, journal=tmp_path / "journal"), 4))
    assert len(rows) == 4  # one batch of four has been written
    lines = (tmp_path / "journal").read_text().splitlines(keepends=True)
    (tmp_path / "journal").write_text("".join(lines[:3]) + lines[3][:5])
    rows.insert(0, encode(said[3]))
    again = list(islice(synthesize(llama, 2, journal=tmp_path / "journal"), 8))
    assert again[:4] == first and [text for text, _ in again] == said and not rows


@pytest.fixture
def written(monkeypatch):
    """Stands for the sampler: what it is to write, a text each, and what it was asked."""
    rows: list[list[int]] = []
    asked = {}

    def generate(lm, prompts, *, seeds, stop_ids, **settings):
        asked.update(prompts=prompts, seeds=seeds, stop_ids=stop_ids, **settings)
        return [rows.pop(0) if rows else [] for _ in prompts]

    monkeypatch.setattr(sources, "generate", generate)
    return rows, asked


def test_prompt_is_what_comes_before_a_user_turn(lm, written):
    _, asked = written
    next(synthesize(lm, 100))
    assert len({*asked["seeds"]}) == len(asked["prompts"]) == sources.BATCH["cpu"]
    for prompt in asked["prompts"]:
        assert lm.tokenizer.decode(prompt) == "<|im_start|>user\n"
        assert all(chat_ids(lm, turn)[: len(prompt)] == prompt for turn in TURNS)
    assert asked["stop_ids"] == set(lm.tokenizer.convert_tokens_to_ids(
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]))
    assert asked["temperature"] == asked["top_p"] == 1.0


def test_faults(llama, written, monkeypatch):
    """By hand: of a turn that fills all tokens nobody knows how it would have ended."""
    rows, _ = written
    encode = llama.tokenizer.encode
    full = encode("Count the ways in which a river can end in a sea of sand.")
    monkeypatch.setattr(sources, "MAX_NEW_TOKENS", len(full))
    rows += [full, full[:-1], encode("Hi!"), encode("go on " * 4), [],
             [*encode("A poem with a"), encode("é")[0]]]
    found = dict(islice(zip(("full", "one less", "greeting", "circles", "nothing", "half a letter"),
                            synthesize(llama, 1), strict=False), 6))
    assert {name: reason for name, (_, reason) in found.items()} == {
        "full": "unfinished", "one less": None, "greeting": "too short", "circles": "repetition",
        "nothing": "too short", "half a letter": "garbled"}
    assert found["one less"][0] == "Count the ways in which a river can end in a sea of sand"


def test_end_that_is_no_special_token(llama, written, monkeypatch):
    """Such an end is looked for in the text, where the model has gone on with an answer."""
    tokenizer = copy.deepcopy(llama.tokenizer)
    tokenizer.chat_template = ("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n"
                               "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}")
    lm = dataclasses.replace(llama, tokenizer=tokenizer)
    rows, asked = written
    rows.append(tokenizer.encode("Name a fish.\nassistant: A carp.\nuser: Another one."))
    monkeypatch.setattr(sources, "MAX_NEW_TOKENS", len(rows[-1]))
    assert next(synthesize(lm, 1)) == ("Name a fish.", None)
    assert tokenizer.decode(asked["prompts"][0]) == "user: "


def test_needs_a_chat_template(llama):
    tokenizer = copy.deepcopy(llama.tokenizer)
    tokenizer.chat_template = None
    with pytest.raises(UserError, match="random-llama has no chat template"):
        draw("self", 1, lm=dataclasses.replace(llama, tokenizer=tokenizer))
