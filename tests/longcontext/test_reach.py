"""Facts found and losses against a model that is simply asked, text by text."""

import pytest
import torch

from rmutils import load_model
from rmutils.longcontext.reach import ReachConfig, _at_even_depths, encode, reach, read, readings

CONFIG = ReachConfig(lengths=(300, 520), texts=2, questions=5)


@pytest.fixture(scope="module")
def olmo():
    return load_model("tiny-olmo3")


def test_as_if_each_question_were_asked_alone(olmo):
    hits = []
    for reading in (r for length in CONFIG.lengths for r in readings(olmo, CONFIG, length)):
        found, loss = read(olmo, reading)
        hits += found
        for turn, (start, end), hit in zip(reading.turns, reading.values, found, strict=True):
            ids = torch.tensor([reading.shared + turn])
            with torch.inference_mode():
                logits = olmo.model(ids, use_cache=False).logits[0]
            at = len(reading.shared)
            value = logits[at + start - 1:at + end - 1].argmax(-1)
            assert hit == (value.tolist() == turn[start:end])
        odds = logits[:len(loss)].log_softmax(-1)
        alone = -odds.gather(1, ids[0, 1:len(loss) + 1, None])[:, 0]
        torch.testing.assert_close(loss, alone, rtol=1e-3, atol=1e-3)
    assert True in hits


def test_texts_are_long_enough_and_hold_each_value_before_it_is_asked_for(olmo):
    for length in CONFIG.lengths:
        for reading in readings(olmo, CONFIG, length):
            longest = max(len(reading.shared) + len(turn) for turn in reading.turns)
            assert length - 80 < longest <= length
            text = olmo.tokenizer.decode(reading.shared)
            for turn, (start, end) in zip(reading.turns, reading.values, strict=True):
                value = olmo.tokenizer.decode(turn[start:end]).strip()
                assert value in text and olmo.tokenizer.decode(turn).rstrip(".").endswith(value)
            assert reading.shared[0] == encode(olmo, "<|user|>")[0]
            assert sorted(reading.depths) == reading.depths


def test_facts_are_those_nearest_to_the_middles_of_even_stretches_and_none_twice():
    told = [(depth, f"at {depth}") for depth in (0.0, 0.1, 0.2, 0.45, 0.5, 0.9)]
    assert _at_even_depths(told, 2) == [(0.2, "at 0.2"), (0.9, "at 0.9")]  # 0.25 and 0.75
    assert _at_even_depths([(0.1, "a"), (0.15, "b")], 2) == [(0.1, "a"), (0.15, "b")]


def test_what_reach_tells(olmo):
    told = []
    answers, losses = reach(olmo, CONFIG, told.append)
    assert sum(told) == 4 and {row["length"] for row in answers} == {300, 520}
    assert [row["position"] for row in losses[:3]] == [21, 63, 105] and len(losses) == 2 * 10
    again, _ = reach(olmo, CONFIG)
    assert again == answers
