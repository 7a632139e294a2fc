"""Streaming attention against weights that are masked token by token."""

import torch

from rmutils.attention.streaming import NAME, Streaming
from rmutils.models.engine.implementations import attached, register, using
from tests.conftest import two_families

PROMPT = torch.arange(7, 47)[None]
SETTINGS = Streaming(first=3, recent=9)


@two_families
def test_first_and_recent_tokens_are_seen(lm):
    def slow(module, query, key, value, mask, *, scaling, **kwargs):
        seen = torch.tensor([[k <= q and (k < 3 or q - k < 9) for k in range(40)]
                             for q in range(40)])
        seen = seen if mask is None else seen & mask[0, 0]
        heads = [(query[0, h] @ key[0, h // 2].T * scaling).masked_fill(~seen, -torch.inf)
                 .softmax(-1) @ value[0, h // 2] for h in range(4)]
        return torch.stack(heads, dim=1)[None], None

    register("slow_streaming", slow)
    with torch.inference_mode():
        plain = lm.model(PROMPT).logits
        with using(lm.model, "slow_streaming"):
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
        ids = list(prompt)
        for token in answers[0][0]:
            with torch.inference_mode():
                assert int(lm.model(torch.tensor([ids])).logits[0, -1].argmax()) == token
            ids.append(token)
    assert answers[0][1] == 12 / 40
