"""Keys and values of several texts in one batch, with room for the tokens to come.

No layer is told of a sliding window: all positions are kept, so that indices are positions in the
text, and the masks alone make the window.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer


class _Room:
    """The place of a layer's keys and values, made when the first of them come.

    What is never written is zero: it is masked, but must not be NaN.
    """

    def __init__(self, rows: int, columns: int):
        self.size = rows, columns
        self.tensors: tuple[Tensor, ...] = ()

    def put(self, rows: slice, start: int, new: Sequence[Tensor]) -> None:
        count, columns = self.size
        self.tensors = self.tensors or tuple(
            part.new_zeros(count, part.shape[1], columns, part.shape[3]) for part in new)
        for whole, part in zip(self.tensors, new, strict=True):
            whole[rows, :, start : start + part.shape[2]] = part


class _RoomyLayer(DynamicLayer):
    """Some rows of a room from a column on, so that a step copies nothing."""

    def __init__(self, room: _Room, rows: slice = slice(None), start: int = 0):
        super().__init__()
        self.room, self.rows, self.start = room, rows, start

    def update(self, key_states: Tensor, value_states: Tensor, *args, **kwargs):
        used = self.get_seq_length()
        self.room.put(self.rows, self.start + used, (key_states, value_states))
        self.show(used + key_states.shape[2])
        return self.keys, self.values

    def show(self, used: int) -> None:
        """Take so many columns as filled, if anything is."""
        for name, whole in zip(("keys", "values"), self.room.tensors, strict=False):
            setattr(self, name, whole[self.rows, :, self.start : self.start + used])
            self.dtype, self.device, self.is_initialized = whole.dtype, whole.device, True

    def has_room(self, columns: int) -> bool:
        """Whether it is the whole room, and so many more columns are left."""
        return self.rows == slice(None) and (
            self.room.size[1] - self.start - self.get_seq_length() >= columns)


def roomy_cache(layers: int, columns: int, rows: int = 1) -> DynamicCache:
    """An empty cache with room for so many tokens in each of its rows."""
    return _cache(_RoomyLayer(_Room(rows, columns)) for _ in range(layers))


def rows_of(cache: DynamicCache, lengths: Sequence[int]) -> list[DynamicCache]:
    """Caches of the rows of an empty `roomy_cache`, for texts of so many tokens.

    Texts are padded on the left, up to the longest. When all are read, `filled` says so to `cache`.
    """
    return [_cache(_RoomyLayer(layer.room, slice(i, i + 1), max(lengths) - length)
                   for layer in cache.layers) for i, length in enumerate(lengths)]


def filled(cache: DynamicCache, columns: int) -> DynamicCache:
    """The cache itself, with so many columns that were written through `rows_of`."""
    for layer in cache.layers:
        layer.show(columns)
    return cache


def stack_caches(caches: list[DynamicCache], room: int) -> DynamicCache:
    """Caches of several lengths below each other, padded on the left.

    Parameters
    ----------
    caches : list of DynamicCache
        Each with one row or more. One that holds nothing yet is that of one row. They are emptied
        layer by layer, to save memory. A single one with room enough is returned as it is.
    room : int
        Tokens that can be added to the result.
    """
    if len(caches) == 1 and all(isinstance(layer, _RoomyLayer) and layer.has_room(room)
                                for layer in caches[0].layers):
        return caches.pop()
    longest = max(cache.get_seq_length() for cache in caches)
    stacked = []
    for i in range(max(len(cache.layers) for cache in caches)):
        layers = [cache.layers[i] if cache.layers else DynamicLayer() for cache in caches]
        ends = [0]
        for layer in layers:
            ends.append(ends[-1] + (len(layer.keys) if layer.is_initialized else 1))
        place = _Room(ends[-1], longest + room)
        for layer, start, end in zip(layers, ends, ends[1:], strict=False):
            if layer.is_initialized:
                place.put(slice(start, end), longest - layer.get_seq_length(),
                          (layer.keys, layer.values))
            layer.keys = layer.values = None
        stacked.append(_RoomyLayer(place))
    caches.clear()
    return filled(_cache(stacked), longest)


def _cache(layers) -> DynamicCache:
    cache = DynamicCache()
    cache.layers.extend(layers)
    return cache
