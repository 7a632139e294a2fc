"""Sliding layers in blocks, and documents one by one, against SDPA over all keys."""

import pytest
import torch

from rmutils.longcontext import context_parallel as module
from rmutils.longcontext.packing import packed_inputs
from rmutils.models.engine.implementations import using

ROWS = [[list(range(5, 35)), list(range(100, 130))], [list(range(60, 110)), [7, 8, 9]]]


@pytest.mark.parametrize("rows, length", [(2, 72), (2, 96), (2, 80), (1, 72), (1, 80)])
def test_logits_and_gradients_of_sdpa(lm, rows, length, monkeypatch):
    """Windows of 24 tokens, documents that the blocks cut through, padding; 80 tokens are no
    multiple of the window and go the usual way. Documents of a single row are read one by one in
    layers without a window."""
    whole = []
    usual = module.sdpa_attention_forward
    monkeypatch.setattr(module, "sdpa_attention_forward",
                        lambda *given, **more: whole.append(1) or usual(*given, **more))
    inputs = packed_inputs(lm.model, ROWS[:rows], length=length, pad_id=0)
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
    sliding = 3 if lm.family in {"olmo3", "gemma3_text"} else 0
    assert len(whole) == (sliding if length % 24 else 0) + (4 - sliding if rows > 1 else 0)


def test_documents_of_a_mask():
    apart = torch.tensor([0, 0, 0, 1, 2, 2])
    mask = ((apart[:, None] == apart) & torch.ones(6, 6).tril().bool())[None, None]
    assert module.documents_of(mask) == [3, 1, 2]
    for row, key in ((0, 1), (1, 0), (5, 0), (3, 2)):  # one pair more, or one less
        other = mask.clone()
        other[0, 0, row, key] ^= True
        assert module.documents_of(other) is None
    assert module.documents_of(mask.expand(2, 1, 6, 6)) is None
    assert module.documents_of(mask[:, :, 2:]) is None
