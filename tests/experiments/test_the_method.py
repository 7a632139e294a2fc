"""The loss on one pair, against the package's log-likelihoods and the equation by hand."""

import math

import pytest
import torch

from rmutils.book.chapters.the_method import train_on_one_pair
from rmutils.evaluation.answers import log_probabilities
from tests.conftest import two_families


@two_families
def test_training_on_one_pair_starts_at_log_2_and_follows_equation_5(lm):
    pair = {"prompt_ids": [[5, 6, 7]], "chosen_ids": [[8, 9]], "rejected_ids": [[10, 11, 12]]}
    before = {name: weight.clone() for name, weight in lm.model.state_dict().items()}
    found = train_on_one_pair(lm, pair, steps=3, learning_rate=0.1, beta=0.5)
    assert found["loss"][0] == pytest.approx(math.log(2))
    for side in ("chosen", "rejected"):
        assert found[side][0] == pytest.approx(log_probabilities(
            lm, pair["prompt_ids"], pair[f"{side}_ids"])[0], abs=1e-4)
    moved = found["chosen"] - found["chosen"][0] - (found["rejected"] - found["rejected"][0])
    for by_hand, row in zip(moved, found.itertuples(), strict=True):
        assert row.loss == pytest.approx(math.log(1 + math.exp(-0.5 * by_hand)), abs=1e-4)
    assert found["loss"].is_monotonic_decreasing
    assert all(torch.equal(before[name], weight) for name, weight in lm.model.state_dict().items())
