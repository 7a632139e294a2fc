"""Packed documents see only themselves, also in blocks of a window and in parallel contexts."""

import tracemalloc

import numpy as np
import pytest
import torch

from rmutils.core.errors import UserError
from rmutils.longcontext import context_parallel as module
from rmutils.longcontext.context_parallel import balance, communication, packed_balance
from rmutils.longcontext.packing import best_fit, concatenate_and_split, packed_inputs
from rmutils.models.engine.implementations import using

RNG = np.random.default_rng(0)
CAPACITY = 600
LENGTHS = RNG.integers(1, 500, 300).tolist() + [600, 1200, 1900, 601]


def obvious(lengths, capacity):
    """Free room after best fit: each time, look at all instances."""
    rooms = [0] * sum(n // capacity for n in lengths)
    for length in sorted((n % capacity for n in lengths), reverse=True):
        if length:
            fits = [room for room in rooms if room >= length]
            rooms.remove(min(fits)) if fits else None
            rooms.append((min(fits) if fits else capacity) - length)
    return sorted(rooms)


def rooms(packing):
    filled = np.bincount(packing.instance, packing.length)
    return sorted((packing.capacity - filled).astype(int).tolist())


def test_best_fit_against_the_obvious_way():
    """Behind whole instances the longest comes first; of two that are alike, the earlier document.
    """
    packing = best_fit(LENGTHS, CAPACITY)
    assert rooms(packing) == obvious(LENGTHS, CAPACITY)
    rest = packing.length < CAPACITY
    order = [*zip(-packing.length[rest], packing.document[rest], strict=True)]
    assert order == sorted(order) and len({n for n, _ in order}) < len(order)


@pytest.mark.parametrize("pack", [best_fit, concatenate_and_split])
def test_every_token_lies_in_one_place(pack):
    packing = pack(LENGTHS, CAPACITY)
    seen = [np.zeros(n, int) for n in LENGTHS]
    for document, start, length in zip(packing.document, packing.start, packing.length,
                                       strict=True):
        seen[document][start:start + length] += 1
    assert all((tokens == 1).all() for tokens in seen)
    assert min(rooms(packing)) >= 0 and packing.instances == len(rooms(packing))
    assert packing.padding == sum(rooms(packing))
    some = [packing.instances - 1, 0, 7]
    assert packing.lengths(some) == [
        [int(n) for n, instance in zip(packing.length, packing.instance, strict=True)
         if instance == number] for number in some]


def test_by_hand():
    """Ten tokens each. Best fit: 7 3, 6 4, 5, and the long one fills one and leaves 2 beside 5."""
    packing = best_fit([3, 7, 4, 6, 12, 5], 10)
    assert rooms(packing) == [0, 0, 0, 3] and packing.padding == 3 and packing.cut == 1
    piece = packing.document == 4
    assert packing.start[piece].tolist() == [0, 10] and packing.length[piece].tolist() == [10, 2]
    # 3 7 | 4 6 | 12 -> 10, 2 | 2 5: one document is cut, none is padded but the last instance
    split = concatenate_and_split([3, 7, 4, 6, 12, 5], 10)
    assert split.length.tolist() == [3, 7, 4, 6, 10, 2, 5] and split.cut == 1
    assert split.instance.tolist() == [0, 0, 1, 1, 2, 3, 3] and split.padding == 3


def test_many_documents():
    """Memory grows with the documents, not faster."""
    lengths = np.minimum(RNG.lognormal(7.5, 1.3, 20_000).astype(int) + 1, 300_000)
    packing = best_fit(lengths, 65_536)
    assert packing.length.sum() == lengths.sum() and packing.padding < 65_536 * 2
    peaks = []
    for count in (2_000, 8_000):
        tracemalloc.start()
        best_fit(lengths[:count], 65_536)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 4.5 * peaks[0]


@pytest.mark.parametrize(("lengths", "capacity"), [([], 5), ([3, 0], 5), ([3], 0)])
def test_nothing_to_pack(lengths, capacity):
    for pack in (best_fit, concatenate_and_split):
        with pytest.raises(UserError, match="nothing to pack"):
            pack(lengths, capacity)


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


def test_what_is_sent_and_who_waits():
    """Olmo 3 7B by hand: 32 layers, 8 slices of 8,192 tokens; each receives seven of them."""
    assert communication(65_536, 8, layers=32, key_heads=32, head_size=128) == \
        7 * 8192 * 32 * (2 * 32 * 128 * 2)
    rows, columns = np.indices((64, 64))
    for window in (None, 10):
        seen = (columns <= rows) & (rows - columns < (window or 64))
        np.testing.assert_allclose(balance(64, 4, window),
                                   seen.reshape(4, -1).sum(1) / seen.sum())


def test_who_waits_where_documents_do_not_see_each_other():
    """Against masks: an instance of three documents and padding, one of a single document."""
    rows, columns = np.indices((64, 64))
    for window in (None, 10):
        near = (columns <= rows) & (rows - columns < (window or 64))
        document = np.repeat([0, 1, 2, 3], [30, 20, 6, 8])
        packed = near & (document[:, None] == document) & (document < 3)
        work = np.stack([each.sum(1).reshape(4, -1).sum(1) for each in (packed, near)])
        np.testing.assert_allclose(packed_balance([[30, 20, 6], [64]], 64, 4, window),
                                   work / work.mean(1, keepdims=True))
