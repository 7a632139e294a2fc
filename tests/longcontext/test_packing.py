"""Packing against the obvious way, and against what no packing may lose."""

import tracemalloc

import numpy as np
import pytest

from rmutils.core.errors import UserError
from rmutils.longcontext.packing import best_fit, concatenate_and_split

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
