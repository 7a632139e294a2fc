"""Sliding layers in blocks against SDPA over all keys."""

import pytest
import torch

from rmutils.longcontext import context_parallel as module
from rmutils.longcontext.packing import packed_inputs
from rmutils.models.engine.implementations import using

ROWS = [[list(range(5, 35)), list(range(100, 130))], [list(range(60, 110)), [7, 8, 9]]]


@pytest.mark.parametrize("length", [72, 96, 80])
def test_logits_and_gradients_of_sdpa(lm, length, monkeypatch):
    """Windows of 24 tokens, documents that the blocks cut through, padding; 80 tokens are no
    multiple of the window and go the usual way."""
    whole = []
    usual = module.sdpa_attention_forward
    monkeypatch.setattr(module, "sdpa_attention_forward",
                        lambda *given, **more: whole.append(1) or usual(*given, **more))
    inputs = packed_inputs(lm.model, ROWS, length=length, pad_id=0)
    named = dict(lm.model.named_parameters())
    one = lm.model(**inputs)
    wanted = torch.autograd.grad(one.loss, named.values())
    with using(lm.model, module.WINDOW_BLOCKS):
        other = lm.model(**inputs)
        found = torch.autograd.grad(other.loss, named.values())
    seen = inputs["labels"] != -100  # padding may look at what it likes
    torch.testing.assert_close(other.logits[seen], one.logits[seen], rtol=1e-4, atol=1e-4)
    for name, a, b in zip(named, found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3, msg=name)
    in_blocks = 3 if lm.family in {"olmo3", "gemma3_text"} and length % 24 == 0 else 0
    assert len(whole) == 4 - in_blocks
