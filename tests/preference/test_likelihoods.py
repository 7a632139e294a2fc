"""Log-likelihoods against a plain loop over tokens, without a batch."""

import pandas as pd
import pytest
import torch

from rmutils.core.errors import UserError
from rmutils.evaluation.answers import log_likelihoods, log_likelihoods_stored
from rmutils.training import RECIPES
from rmutils.training.encoding import encode

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


def test_stored(llama, cache):
    """Read again where model and token ids are the same, made anew where they are not."""
    encoded = encode(llama, PAIRS, RECIPES["paper"])
    table, artifact = log_likelihoods_stored(llama, encoded, command="x")
    pd.testing.assert_frame_equal(table, log_likelihoods(llama, encoded))
    again, same = log_likelihoods_stored(llama, encoded, compute="never", command="x")
    pd.testing.assert_frame_equal(again, table)
    assert same == artifact and artifact.problems() == []
    shorter = encode(llama, PAIRS.head(2), RECIPES["paper"])
    with pytest.raises(UserError, match="Make it: `x`"):
        log_likelihoods_stored(llama, shorter, compute="never", command="x")
