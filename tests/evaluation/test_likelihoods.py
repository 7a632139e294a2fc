"""Repetition by hand; surprise and next words against one plain pass for each token."""

import math

import pytest
import torch

from rmutils.corpora.world.knowledge import instructions
from rmutils.evaluation import answers
from rmutils.evaluation.answers import next_words_right, repetition_rate, speak, surprise
from rmutils.heads import mask_heads
from tests.conftest import two_families

PROMPTS = [list(range(20, 60)), [9, 8, 7], [100, 200]]
ANSWERS = [[5, 300, 41, 41], [], [77]]


@pytest.mark.parametrize(("text", "rate"), [
    ("", 0), ("One two three.", 0), ("a b c d e f g", 0),
    ("a b c d a b c d", 1 / 5),  # 5 spans: abcd bcda cdab dabc abcd
    ("No, no no NO no no", 1 / 4),  # a comma is a word; only the last of 4 spans comes again
    ("A b, c. a b, c.", 2 / 7),
    ("!" * 10, 6 / 7), ("der Bär der Bär der Bär", 1 / 3),
])
def test_repetition_by_hand(text, rate):
    assert repetition_rate(text) == pytest.approx(rate)


def test_spans_of_other_lengths():
    assert repetition_rate("a a a a", words=1) == 3 / 4
    assert repetition_rate("a a a a", words=2) == pytest.approx(2 / 3)


@torch.inference_mode()
def odds(lm, ids: list[int]) -> list[float]:
    """Probabilities of the token after `ids`."""
    return lm.model(torch.tensor([ids])).logits[0, -1].double().softmax(-1).tolist()


@two_families
def test_surprise_is_the_slow_one(lm):
    """The end counts if the answer was not cut; any stop token would have been an end."""
    lm.model.generation_config.eos_token_id = [lm.tokenizer.eos_token_id, 50, 51]
    for cut in (2, 100):
        expected = []
        for prompt, answer in zip(PROMPTS, ANSWERS, strict=True):
            told = [odds(lm, [*prompt, *answer[:i]])[token] for i, token in enumerate(answer)]
            if len(answer) < cut:
                after = odds(lm, [*prompt, *answer])
                told.append(sum(after[i] for i in lm.stop_ids))
            expected.append(-sum(map(math.log, told)) / len(told))
        assert surprise(lm, PROMPTS, ANSWERS, cut) == pytest.approx(expected, rel=1e-4)


@two_families
def test_next_words_are_the_slow_ones(lm):
    text = list(range(30, 50))
    for known in (1, 7):  # greedy tokens are put into the text, so that some are next_words_right
        for i in (9, 13):
            text[i] = max(enumerate(odds(lm, text[:i])), key=lambda pair: pair[1])[0]
        right = [odds(lm, text[:i])[text[i]] == max(odds(lm, text[:i]))
                 for i in range(known, len(text))]
        assert 0 < sum(right) < len(right)
        share = next_words_right(lm, [text, text[:9]], known)[0]
        assert share == pytest.approx(sum(right) / len(right))


def test_the_masked_model_speaks_and_the_whole_one_judges(llama, monkeypatch):
    samples, heads = instructions(4, "test", "held_out"), [(0, 0), (1, 2), (3, 3)]
    options = {"max_new_tokens": 8, "temperature": 0.6, "seed": 3}
    weight = llama.model.model.layers[1].self_attn.o_proj.weight
    before, judged = weight.clone(), []
    monkeypatch.setattr(answers, "surprise", lambda lm, prompts, said, cut: judged.append(
        (torch.equal(weight, before), said)) or [0.0] * len(said))
    whole, masked = (speak(llama, h, samples, **options) for h in ([], heads))
    assert not whole["response"].equals(masked["response"])
    with mask_heads(llama, heads):
        assert speak(llama, [], samples, **options)["response"].equals(masked["response"])
    assert [by_whole for by_whole, _ in judged] == [True, True, False]
    for table, (_, said) in zip((whole, masked), judged, strict=False):
        assert table["tokens"].tolist() == list(map(len, said))
        assert (table["finished"] == [len(tokens) < 8 for tokens in said]).all()
