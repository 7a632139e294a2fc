"""Keys and values of several texts in one batch, with room for the tokens to come."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer


class _RoomyLayer(DynamicLayer):
    """A cache layer with room for the tokens to come, so that a step copies nothing."""

    def __init__(self, keys: Tensor, values: Tensor, used: int):
        super().__init__()
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True
        self._room = keys, values
        self._show(used)

    def _show(self, used: int) -> None:
        self.keys, self.values = (tensor[:, :, :used] for tensor in self._room)

    def update(self, key_states: Tensor, value_states: Tensor, *args, **kwargs):
        start = self.keys.shape[2]
        for room, new in zip(self._room, (key_states, value_states), strict=True):
            room[:, :, start : start + new.shape[2]] = new
        self._show(start + key_states.shape[2])
        return self.keys, self.values


def stack_caches(caches: list[DynamicCache], room: int) -> tuple[list[int], DynamicCache]:
    """Caches of several lengths below each other, padded on the left.

    No layer is told of a sliding window: all positions are kept, and the masks alone make it.

    Parameters
    ----------
    caches : list of DynamicCache
        Each with one row or more. One that holds nothing yet is that of one row. They are emptied
        layer by layer, to save memory.
    room : int
        Tokens that can be added to the result.

    Returns
    -------
    list of int, DynamicCache
        Columns of padding that each cache was given, and the cache of all rows.
    """
    lengths = [cache.get_seq_length() for cache in caches]
    pads = [max(lengths) - n for n in lengths]
    stacked = DynamicCache()
    full = max(caches, key=lambda cache: len(cache.layers))
    for i, layer in enumerate(full.layers):
        nothing = DynamicLayer()
        nothing.keys, nothing.values = layer.keys[:1, :, :0], layer.values[:1, :, :0]
        layers = [cache.layers[i] if cache.layers else nothing for cache in caches]
        both = [_padded([getattr(layer, name) for layer in layers], pads, room)
                for name in ("keys", "values")]
        for layer in layers:
            layer.keys = layer.values = None
        stacked.layers.append(_RoomyLayer(*both, used=max(lengths)))
    caches.clear()
    return pads, stacked


def _padded(parts: Sequence[Tensor], pads: Sequence[int], room: int) -> Tensor:
    """(rows, heads, length, size) of each part -> all rows, with columns before and after."""
    _, heads, length, size = parts[0].shape
    whole = parts[0].new_zeros(sum(map(len, parts)), heads, pads[0] + length + room, size)
    row = 0
    for part, pad in zip(parts, pads, strict=True):
        whole[row : row + len(part), :, pad : pad + part.shape[2]] = part
        row += len(part)
    return whole
