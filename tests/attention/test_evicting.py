"""H2O and SnapKV against attention whose weights are zeroed token by token."""

import pytest
import torch

from rmutils.attention.evicting import H2O, NAME, SnapKV
from rmutils.attention.variants import Plain
from rmutils.core.errors import UserError
from rmutils.models.engine.implementations import attached, using
from tests.attention.by_hand import heads_by_hand
from tests.conftest import two_families

PROMPT = torch.arange(7, 47).tolist()
VARIANTS = [H2O(tokens=12), SnapKV(tokens=12, window=4)]


def test_a_window_that_leaves_nothing_to_choose_is_refused():
    with pytest.raises(UserError, match="window of 16 leaves none to choose"):
        SnapKV(tokens=16)


def slow_weights(lm):
    """(layers, key heads, 40, 40): of the prompt, mean over the two heads of a key head."""
    with using(lm.model, "eager"), torch.inference_mode():
        found = lm.model(torch.tensor([PROMPT]), output_attentions=True).attentions
    return [layer[0].unflatten(0, (2, 2)).mean(1) for layer in found]


def kept_by_hand(variant, weights):
    """Token by token, for a key head."""
    scores = [0.0] * 40
    queries = range(40) if variant.kind == "h2o" else range(36, 40)
    for query in queries:
        for token in range(40):
            scores[token] += float(weights[query, token])
    recent = 6 if variant.kind == "h2o" else 4
    end = 40 - recent
    if variant.kind == "snapkv":
        scores = [sum(scores[j] for j in range(max(0, i - 2), min(end, i + 3))) / 5
                  for i in range(end)]
    highest = sorted(range(end), key=lambda i: -scores[i])[: 12 - recent]
    return {*highest, *range(end, 40)}


@two_families
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.kind)
def test_tokens_that_were_looked_at_most_are_kept(lm, variant):
    for weights in slow_weights(lm):
        chosen = variant.choose(weights)
        for head in range(2):
            kept = {i for i, one in enumerate(chosen[head].tolist()) if one}
            assert kept == kept_by_hand(variant, weights[head])


@two_families
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.kind)
def test_what_was_evicted_has_no_weight_behind_the_prompt(lm, variant):
    kept = [variant.choose(weights) for weights in slow_weights(lm)]
    text = torch.tensor([[*PROMPT, 9, 11, 8]])

    def evicted(layer, head, scores):
        scores[40:, :40].masked_fill_(~kept[layer][head // 2], -torch.inf)
        return scores

    with torch.inference_mode():
        plain = lm.model(text).logits
        with heads_by_hand(lm, evicted):
            expected = lm.model(text).logits
        with attached(lm.model, NAME, dict(enumerate(kept))):
            found = lm.model(text).logits
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found[:, :40], plain[:, :40], rtol=1e-4, atol=1e-4)
    assert (found - plain)[:, 40:].abs().max() > 1e-3


@two_families
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.kind)
def test_with_room_for_all_nothing_changes(lm, variant):
    def said(how):
        found = []
        with how.attached(lm) as model:
            model.answer([PROMPT], max_new_tokens=4, done=lambda *answer: found.append(answer))
        return found[0]

    _, tokens, share = said(variant.model_copy(update={"tokens": 40}))
    assert share == 1 and said(variant)[2] == 12 / 40
    assert tokens == said(Plain())[1]
