"""Streaming attention against weights that are masked token by token."""

import torch

from rmutils.attention.streaming import NAME, Streaming
from rmutils.models.engine.implementations import attached
from tests.attention.by_hand import expects, heads_by_hand
from tests.conftest import two_families

PROMPT = torch.arange(7, 47)[None]
SETTINGS = Streaming(first=3, recent=9)


@two_families
def test_first_and_recent_tokens_are_seen(lm):
    hidden = torch.tensor([[3 <= k <= q - 9 for k in range(40)] for q in range(40)])
    with torch.inference_mode():
        plain = lm.model(PROMPT).logits
        with heads_by_hand(lm, lambda layer, head, scores: scores.masked_fill(hidden, -torch.inf)):
            expected = lm.model(PROMPT).logits
        with attached(lm.model, NAME, dict.fromkeys(range(4), SETTINGS)):
            found = lm.model(PROMPT).logits
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found[:, :9], plain[:, :9], rtol=1e-4, atol=1e-4)
    assert (found - plain).abs().max() > 0.01


@two_families
def test_decoding_is_the_full_pass_and_the_share_is_told(lm):
    prompt, answers = PROMPT[0].tolist(), []
    with SETTINGS.attached(lm) as model:
        model.answer([prompt], max_new_tokens=4,
                     done=lambda i, said, share: answers.append((said, share)))
        assert expects(lm, prompt, answers[0][0])
    assert answers[0][1] == 12 / 40
