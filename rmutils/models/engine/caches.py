"""Keys and values of several texts in one batch, with room for the tokens to come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from rmutils.models.engine.implementations import reading
from rmutils.models.head_blocks import check_attention_alone


class _Room:
    """Place of a layer's keys and values; what is not written is zero: masked, but not NaN."""

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
        """Return whether it is the whole room, with so many more columns left."""
        return self.rows == slice(None) and (
            self.room.size[1] - self.start - self.get_seq_length() >= columns)


def roomy_cache(layers: int, columns: int, rows: int = 1) -> DynamicCache:
    """An empty cache with room for so many tokens in each of its rows."""
    return _cache(_RoomyLayer(_Room(rows, columns)) for _ in range(layers))


def rows_of(cache: DynamicCache, lengths: Sequence[int]) -> list[DynamicCache]:
    """Caches of rows of an empty `roomy_cache`, texts padded on the left; then call `filled`."""
    return [_cache(_RoomyLayer(layer.room, slice(i, i + 1), max(lengths) - length)
                   for layer in cache.layers) for i, length in enumerate(lengths)]


def filled(cache: DynamicCache, columns: int) -> DynamicCache:
    """The cache itself, with so many columns that were written through `rows_of`."""
    for layer in cache.layers:
        layer.show(columns)
    return cache


def stack_caches(caches: list[DynamicCache], room: int) -> DynamicCache:
    """Caches of several lengths below each other, padded on the left."""
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


def view_of(cache: DynamicCache) -> DynamicCache:
    """A cache of the same tensors, which can be emptied without harm to the first."""
    return DynamicCache([(layer.keys, layer.values) for layer in cache.layers
                         if layer.is_initialized] or None)


def keep_rows(cache: DynamicCache, rows: Sequence[int]) -> None:
    """Take all other rows out of a `roomy_cache`, layer by layer."""
    for layer in cache.layers:
        room, used = layer.room, layer.get_seq_length()
        room.tensors = tuple(part[rows] for part in room.tensors)
        room.size = len(rows), room.size[1]
        layer.show(used)


def bytes_per_token(cache: DynamicCache) -> float:
    """Bytes that the keys and values of a token take."""
    parts = [part for layer in cache.layers if layer.is_initialized
             for part in (layer.keys, layer.values)]
    return sum(part.element_size() * part[:, :, :1].numel() / len(part) for part in parts)


def _cache(layers) -> DynamicCache:
    cache = DynamicCache()
    cache.layers.extend(layers)
    return cache


WORTH = 64  # a shared beginning of fewer tokens is not worth a reading of its own
PART = 512  # so many tokens are read at once, which bounds the memory; more would hardly be faster


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Number of leading elements that two sequences share."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))


class Trunk:
    """The cached keys and values of a text that many prompts begin with."""

    def __init__(self, model: PreTrainedModel, ids: Sequence[int], before: Trunk | None = None):
        self.model = model
        self.ids = tuple(ids)
        known = common_prefix(before.ids, self.ids) if before else 0
        self.cache = _room(model, len(self.ids))
        if known >= WORTH:
            before._copy(known, self.cache)
        _prefill(model, [self.ids[self.cache.get_seq_length() :]], self.cache)

    def read(self, prompt: Sequence[int], room: int = 0) -> DynamicCache:
        """Cache of `prompt` but its last token, with room; what is shared is not recomputed."""
        return read_rows(self.model, [self], [prompt], room)

    def read_all(self, prompts: Sequence[Sequence[int]], copies: int = 1) -> list[DynamicCache]:
        """`read` for each prompt, in one batch; what only some of them share is read by each."""
        cache = _room(self.model, max(map(len, prompts)), len(prompts))
        self._read(prompts, cache)
        return [DynamicCache([(layer.keys[i : i + 1, :, : len(prompt) - 1],
                               layer.values[i : i + 1, :, : len(prompt) - 1])
                              for layer in cache.layers if layer.is_initialized] or None)
                for i, prompt in enumerate(prompts) for _ in range(copies)]

    def _read(self, prompts: Sequence[Sequence[int]], cache: DynamicCache) -> None:
        known = min(common_prefix(self.ids, prompt[:-1]) for prompt in prompts)
        if known >= WORTH:
            self._copy(known, cache, len(prompts))
        known = cache.get_seq_length()
        _prefill(self.model, [prompt[known:-1] for prompt in prompts], cache)

    @torch.inference_mode()
    def _copy(self, tokens: int, cache: DynamicCache, rows: int = 1) -> None:
        """The first tokens, into each row of an empty cache."""
        for own, layer in zip(self.cache.layers, cache.layers, strict=True):
            layer.update(*(tensor[:, :, :tokens].expand(rows, -1, -1, -1)
                           for tensor in (own.keys, own.values)))


def read_rows(model: PreTrainedModel, trunks: Iterable[Trunk], prompts: Sequence[Sequence[int]],
              room: int = 0) -> DynamicCache:
    """`Trunk.read` for each prompt into one cache, padded on the left."""
    lengths = [len(prompt) - 1 for prompt in prompts]
    cache = _room(model, max(lengths) + room, len(prompts))
    for trunk, prompt, row in zip(trunks, prompts, rows_of(cache, lengths), strict=True):
        trunk._read([prompt], row)
    return filled(cache, max(lengths))


def _room(model: PreTrainedModel, columns: int, rows: int = 1) -> DynamicCache:
    check_attention_alone(model)
    return roomy_cache(model.config.num_hidden_layers, columns, rows)


@torch.inference_mode()
def _prefill(model: PreTrainedModel, parts: Sequence[Sequence[int]], cache: DynamicCache) -> None:
    """Read on in each row. Shorter rows are padded on the right, where nothing sees the padding."""
    longest = max(map(len, parts))
    ids = torch.tensor([[*part, *[0] * (longest - len(part))] for part in parts],
                       dtype=torch.long, device=model.device)
    for start in range(0, longest, PART):
        with reading(model):
            model.base_model(input_ids=ids[:, start : start + PART], past_key_values=cache,
                             use_cache=True)


def families(prompts: Sequence[Sequence[int]]) -> list[tuple[list[int], int]]:
    """Prompts grouped by what they share."""
    order = sorted(range(len(prompts)), key=lambda i: tuple(prompts[i]))
    shared = [common_prefix(prompts[a], prompts[b]) for a, b in zip(order, order[1:], strict=False)]
    groups = [order[:1]] if order else []
    for i, index in enumerate(order[1:]):
        most = max(shared[max(i - 1, 0) : i + 2])
        if shared[i] + WORTH > most:
            groups[-1].append(index)
        else:
            groups.append([index])
    found = []
    for group in groups:
        trunk = common_prefix(prompts[group[0]], prompts[group[-1]])  # of all, by their order
        trunk = min(trunk, *(len(prompts[i]) - 1 for i in group))
        group.sort(key=lambda i: -len(prompts[i]))
        found.append((group, trunk if len(group) > 1 and trunk >= WORTH else 0))
    return sorted(found, key=lambda family: -len(prompts[family[0][0]]))
