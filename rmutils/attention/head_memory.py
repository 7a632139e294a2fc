"""A cache that spends its memory by heads, like DuoAttention (2410.10819) and RazorAttention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NamedTuple, NoReturn

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer

from rmutils.attention.decoding import ALIKE
from rmutils.attention.decoding import NAME as CAPTURE
from rmutils.core.errors import UserError
from rmutils.core.validation import Heads, checked
from rmutils.models import LanguageModel
from rmutils.models.engine.caches import Trunk
from rmutils.models.engine.implementations import attached, grouped_query, register_by_layer
from rmutils.models.known_models import check

NAME = "memory_by_heads"
SLIDING = "sliding_attention"  # layers of this type keep a window anyway, and are left as they are


class Ragged(NamedTuple):
    """Keys, or values, of a layer: (batch, key heads, tokens, size) each."""

    whole: Tensor
    few: Tensor
    layer: HeadLayer


class HeadLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Keys and values of a layer: those of some key heads whole, of the others a few."""

    def __init__(self, read: Any, whole: Sequence[int], sinks: int, recent: int):
        super().__init__()  # type: ignore[no-untyped-call]
        self.whole = [*whole]
        self.others = [i for i in range(read.keys.shape[1]) if i not in self.whole]
        self.sinks, self.recent, self.seen = sinks, recent, int(read.keys.shape[2])
        self.dtype, self.device, self.is_initialized = read.keys.dtype, read.keys.device, True
        self.parts = tuple(Ragged(tensor[:, self.whole], self._few(tensor[:, self.others]), self)
                           for tensor in (read.keys, read.values))

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Append new tokens, and return what they may see."""
        self.seen += key_states.shape[2]
        shown = tuple(
            Ragged(torch.cat([old.whole, new[:, self.whole]], 2),
                   torch.cat([old.few, new[:, self.others]], 2), self)
            for old, new in zip(self.parts, (key_states, value_states), strict=True))
        self.parts = tuple(Ragged(part.whole, self._few(part.few), self) for part in shown)
        return self.parts if key_states.shape[2] == 1 else shown

    def _few(self, tensor: Tensor) -> Tensor:
        """Evict what lies between the sinks and the most recent tokens."""
        if tensor.shape[2] <= self.sinks + self.recent:
            return tensor
        return torch.cat([tensor[:, :, : self.sinks], tensor[:, :, -self.recent :]], 2)

    def visible(self, queries: int, columns: int) -> Tensor:
        """Return which of the few tokens each new one sees: (queries, columns)."""
        places = torch.arange(columns, device=self.device)
        places = torch.where(places < self.sinks, places, places + self.seen - columns)
        newest = torch.arange(self.seen - queries, self.seen, device=self.device)[:, None]
        return (places <= newest) & ((places < self.sinks) | (newest - places < self.recent))

    def get_seq_length(self) -> int:
        return int(self.seen)

    def _refused(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise UserError("what was evicted from a cache by heads cannot be brought back, so it is "
                        "neither cropped nor reordered. Answer greedily, or sample.")

    crop = reorder_cache = batch_repeat_interleave = batch_select_indices = _refused


class HeadCache(Cache):
    """The cache of a text that has been read, by heads."""

    @property
    def size(self) -> int:
        """Bytes of its keys and values."""
        return sum(tensor.element_size() * tensor.numel()
                   for layer in self.layers for tensor in _tensors(layer))

    @property
    def share(self) -> float:
        """The same as a share of what a full cache of as many tokens takes."""
        full, layers = 0, list[Any](self.layers)
        for layer in layers:
            heads = sum(tensor.shape[1] * tensor.shape[3] * tensor.element_size()
                        for tensor in _tensors(layer))
            full += heads * layer.get_seq_length()
        return self.size / full


def _tensors(layer: Any) -> list[Tensor]:
    if isinstance(layer, HeadLayer):
        return [tensor for part in layer.parts for tensor in (part.whole, part.few)]
    return [layer.keys, layer.values]


def key_heads_of(lm: LanguageModel, heads: Heads) -> dict[int, list[int]]:
    """Return the key heads that query heads read, by layer."""
    share = lm.shape[1] // lm.model.config.num_key_value_heads
    found: dict[int, list[int]] = {layer: [] for layer in lm.layers}
    for layer, head in sorted(lm.checked_heads(heads)):
        if head // share not in found[layer]:
            found[layer].append(head // share)
    return found


@checked
@contextmanager
def memory_by_heads(lm: LanguageModel, heads: Heads, *, sinks: Annotated[int, Field(ge=0)] = 8,
                    recent: Annotated[int, Field(ge=1)] = 64) -> Iterator[Callable[..., HeadCache]]:
    """Read texts in full, and keep keys and values of some heads whole, of the others a few.

    On exit the attention is as before, also after an error.

    Parameters
    ----------
    lm : LanguageModel
    heads : iterable of (layer, head)
        Query heads whose key heads keep all. Texts such as `18-6` will do, too. None: all key heads
        keep a few tokens.
    sinks, recent : int
        How many of the first and of the newest tokens the other key heads keep.

    Yields
    ------
    callable
        Reads the token ids of a prompt, all but the last, and returns their `HeadCache`.

    Examples
    --------
    >>> import torch
    >>> from rmutils import DetectConfig, detect, load_model, memory_by_heads
    >>> lm = load_model("tiny-llama", device="cpu")
    >>> heads = detect(lm, DetectConfig(lengths=(256,), needles=2, max_new_tokens=16)).select(
    ...     top_k=10)
    >>> prompt = lm.render("Bamor lives in Tarmow. " + "The sun is up. " * 60 + "Who is Bamor?")
    >>> with memory_by_heads(lm, heads, sinks=4, recent=32) as read:
    ...     cache = read(prompt)
    ...     answer = lm.model.generate(torch.tensor([prompt]), past_key_values=cache,
    ...                                max_new_tokens=5, do_sample=False)
    >>> cache.share < 0.5
    True
    """
    check(lm)
    own = lm.model.config._attn_implementation
    if own not in {*ALIKE, CAPTURE}:
        raise UserError(f"{lm.name} attends by {own!r}, which memory by heads would replace. Use a "
                        "model with its own attention.")
    config: Any = lm.model.config
    window = SLIDING if getattr(config, "sliding_window", None) else ""  # as in Mistral: all layers
    types = getattr(config, "layer_types", None) or [window] * lm.shape[0]
    whole = {layer: kept for layer, kept in key_heads_of(lm, heads).items()
             if types[layer] != SLIDING}
    if not whole:
        raise UserError(f"every layer of {lm.name} keeps a window of {config.sliding_window} tokens"
                        " and no more, so no head has memory to spare.")

    def read(prompt: Sequence[int], before: Trunk | None = None) -> HeadCache:
        trunk: DynamicCache = Trunk(lm.model, prompt[:-1], before).cache
        layers: list[Any] = [
            HeadLayer(layer, whole[i], sinks, recent) if i in whole else _copy(layer)
            for i, layer in enumerate(trunk.layers)]
        return HeadCache(layers=layers)

    with attached(lm.model, NAME, dict.fromkeys(whole, True)):
        yield read


def _copy(read: Any) -> DynamicLayer:
    """A layer that can grow."""
    layer = DynamicLayer()  # type: ignore[no-untyped-call]
    layer.update(read.keys, read.values)
    return layer


def by_heads(module: nn.Module, query: Tensor, key: Any, value: Any, attention_mask: Tensor | None,
             *, scaling: float, given: bool, **kwargs: Any) -> tuple[Tensor, None]:
    """Attention to keys and values of a `HeadLayer`; to others as always."""
    if not isinstance(key, Ragged):
        return grouped_query(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    if attention_mask is not None and not attention_mask[:, :, -1].all():
        raise UserError("memory by heads is for a single text, or for texts of one length: this "
                        "batch has padding.")
    layer, queries = key.layer, query.shape[2]
    batch, _, _, size = query.shape
    grouped = query.reshape(batch, len(layer.whole) + len(layer.others), -1, queries, size)
    output = grouped.new_empty(*grouped.shape[:-1], value.whole.shape[3])
    for which, keys, values, whole in ((layer.whole, key.whole, value.whole, True),
                                       (layer.others, key.few, value.few, False)):
        if not which:
            continue
        seen = None
        if queries > 1:
            columns = keys.shape[2]
            seen = (torch.ones(queries, columns, dtype=torch.bool, device=query.device).tril(
                columns - queries) if whole else layer.visible(queries, columns)).repeat(
                    grouped.shape[2], 1)
        found = scaled_dot_product_attention(
            grouped[:, which].flatten(2, 3), keys, values, attn_mask=seen, scale=scaling)
        output[:, which] = found.view(batch, len(which), -1, queries, found.shape[3])
    return output.flatten(1, 2).transpose(1, 2).contiguous(), None


register_by_layer(NAME, by_heads, otherwise=grouped_query)
