"""Responses are a function of model, instruction and settings; likelihoods token by token."""

import pandas as pd
import pytest
import torch

from rmutils.core.errors import UserError
from rmutils.evaluation.answers import log_likelihoods, log_likelihoods_stored
from rmutils.heads.masking import mask_heads
from rmutils.preference.instructions import Instruction
from rmutils.preference.responses import ResponseConfig, Transformers, respond, respond_stored
from rmutils.training import RECIPES
from rmutils.training.encoding import encode
from tests.conftest import two_families

TEXTS = ("Who is the mayor of Saltbury?", "Sing.", "Repeat this: a b c d e f g h i j k l", "Why?",
         "Name three animals that live near the river, and say what they eat.")
ASKED = [Instruction.of(text) for text in TEXTS]
SHORT = ResponseConfig(max_new_tokens=12)


def test_defaults_are_those_of_the_authors_scripts():
    config = ResponseConfig()
    assert (config.temperature, config.top_p, config.max_new_tokens) == (0.6, 1.0, 2048)


@two_families
def test_one_response_per_instruction(lm):
    table = respond(Transformers(lm), ASKED, SHORT)
    assert table["id"].tolist() == [i.id for i in ASKED]
    assert table["instruction"].tolist() == list(TEXTS)
    assert ((table["tokens"] < 12) == table["finished"]).all() and (table["tokens"] <= 12).all()
    again = respond(Transformers(lm, batch_tokens=1), ASKED[::-1], SHORT)
    pd.testing.assert_frame_equal(again[::-1].reset_index(drop=True), table)


def test_seeds(llama):
    """Another seed, other heads, another instruction: other numbers are drawn."""
    with_heads = SHORT.model_copy(update={"heads": ((0, 1), (2, 3))})
    seeds = {c.seed_of(i) for i in ASKED for c in
             (SHORT, with_heads, SHORT.model_copy(update={"seed": 1}))}
    assert len(seeds) == 3 * len(ASKED)
    one, two = (respond(Transformers(llama), ASKED, SHORT.model_copy(update={"seed": seed}))
                for seed in (0, 1))
    assert (one["text"] != two["text"]).any()


@two_families
def test_masked_responses_are_those_of_a_masked_model(lm):
    heads = ((1, 0), (3, 2), (2, 1))
    greedy = ResponseConfig(max_new_tokens=8, temperature=0)
    found = respond(Transformers(lm), ASKED, greedy.model_copy(update={"heads": heads}))
    whole = respond(Transformers(lm), ASKED, greedy)
    with mask_heads(lm, heads):
        expected = respond(Transformers(lm), ASKED, greedy)
    pd.testing.assert_frame_equal(found, expected)
    assert (found["text"] != whole["text"]).any()


def test_stored(llama, tmp_path, monkeypatch):
    monkeypatch.setenv("RMUTILS_CACHE", str(tmp_path))
    table, artifact = respond_stored(Transformers(llama), ASKED, SHORT)
    again, same = respond_stored(Transformers(llama), ASKED, SHORT, compute="never")
    pd.testing.assert_frame_equal(again, table)
    assert same == artifact and artifact.problems() == []
    assert artifact.manifest["facts"]["responses"] == 5
    other = SHORT.model_copy(update={"heads": ((0, 0),)})
    assert respond_stored(Transformers(llama), ASKED, other)[1].name != artifact.name


PAIRS = pd.DataFrame({
    "prompt": ["Who hid the keys?", "Say yes.", "Repeat this: a b c d e f g h i j k l m n o p"],
    "chosen": ["Anna hid them under the old bridge, as all of us know by now.", "Yes.", "a b c"],
    "rejected": ["Nobody.", "No, I would rather not say anything at all today.", "a"]})


def text_of(prompt: str, answer: str) -> str:
    return f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>"


def slow(lm, prompt: str, answer: str) -> list[float]:
    """Log-probability of each token after the prompt, one forward pass for each."""
    start = len(lm.tokenizer.encode(text_of(prompt, "").removesuffix("<|im_end|>")))
    ids = lm.tokenizer.encode(text_of(prompt, answer))
    with torch.no_grad():
        return [lm.model(torch.tensor([ids[:place]])).logits[0, -1].log_softmax(-1)[ids[place]]
                .item() for place in range(start, len(ids))]


@pytest.mark.parametrize("batch_tokens", [1, 120, 10_000])
def test_token_by_token(lm, batch_tokens):
    """In one sequence at a time, in two batches and in one: padding changes nothing."""
    found = log_likelihoods(lm, encode(lm, PAIRS, RECIPES["paper"]), batch_tokens=batch_tokens)
    for pair, row in zip(PAIRS.itertuples(), found.itertuples(), strict=True):
        chosen, rejected = (slow(lm, pair.prompt, side) for side in (pair.chosen, pair.rejected))
        assert row.chosen == pytest.approx(sum(chosen), rel=1e-5)
        assert row.rejected == pytest.approx(sum(rejected), rel=1e-5)
        assert row.gap == pytest.approx(sum(chosen) - sum(rejected), rel=1e-4)
        means = (sum(tokens) / len(tokens) for tokens in (chosen, rejected))
        assert (row.chosen_mean, row.rejected_mean) == pytest.approx(tuple(means), rel=1e-5)
        assert row.gap_mean == pytest.approx(row.chosen_mean - row.rejected_mean)


def test_stored_likelihoods(llama, cache):
    """Read again where model and token ids are the same, recomputed where they are not."""
    encoded = encode(llama, PAIRS, RECIPES["paper"])
    table, artifact = log_likelihoods_stored(llama, encoded, command="x")
    pd.testing.assert_frame_equal(table, log_likelihoods(llama, encoded))
    again, same = log_likelihoods_stored(llama, encoded, compute="never", command="x")
    pd.testing.assert_frame_equal(again, table)
    assert same == artifact and artifact.problems() == []
    shorter = encode(llama, PAIRS.head(2), RECIPES["paper"])
    with pytest.raises(UserError, match="Make it: `x`"):
        log_likelihoods_stored(llama, shorter, compute="never", command="x")
