"""Texts that begin alike are read once up to where they part.

Reading takes most of the time of a long prompt. The cases of one haystack, the questions to one
book, and all prompts with the same demonstrations begin with the same tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from transformers import DynamicCache, PreTrainedModel

from rmutils.models.attention import reading
from rmutils.models.caches import filled, roomy_cache, rows_of

WORTH = 64
"""A shared beginning of fewer tokens is not worth a reading of its own."""
PART = 512
"""So many tokens are read at once, which bounds the memory. Where there is something before them,
what the mask hides is computed, too, since the shortcut for causal attention does not apply: in
larger parts there would be more of it."""


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Number of leading elements that two sequences share."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))


class Trunk:
    """The cached keys and values of a text that many prompts begin with.

    Parameters
    ----------
    model : PreTrainedModel
    ids : sequence of int
        Token ids.
    before : Trunk, optional
        What it shares with this one is not read again, if that is worth it.
    """

    def __init__(self, model: PreTrainedModel, ids: Sequence[int], before: Trunk | None = None):
        self.model = model
        self.ids = tuple(ids)
        known = common_prefix(before.ids, self.ids) if before else 0
        self.cache = _room(model, len(self.ids))
        if known >= WORTH:
            before._copy(known, self.cache)
        _prefill(model, [self.ids[self.cache.get_seq_length() :]], self.cache)

    def read(self, prompt: Sequence[int], room: int = 0) -> DynamicCache:
        """Cache of all tokens of `prompt` but the last, with room for so many more; the shared ones
        are not recomputed."""
        return read_rows(self.model, [self], [prompt], room)

    def read_all(self, prompts: Sequence[Sequence[int]]) -> list[DynamicCache]:
        """`read` for each prompt, in one batch. What only some of them share is read by each."""
        cache = _room(self.model, max(map(len, prompts)), len(prompts))
        self._read(prompts, cache)
        return [DynamicCache([(layer.keys[i : i + 1, :, : len(prompt) - 1],
                               layer.values[i : i + 1, :, : len(prompt) - 1])
                              for layer in cache.layers if layer.is_initialized] or None)
                for i, prompt in enumerate(prompts)]

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


def read_rows(
    model: PreTrainedModel, trunks: Iterable[Trunk], prompts: Sequence[Sequence[int]], room: int = 0
) -> DynamicCache:
    """`Trunk.read` for each prompt, one after the other into one cache.

    Its rows are padded on the left, up to the longest, and have room for so many more tokens. Each
    prompt has a trunk, which is asked for when its turn comes.
    """
    lengths = [len(prompt) - 1 for prompt in prompts]
    cache = _room(model, max(lengths) + room, len(prompts))
    for trunk, prompt, row in zip(trunks, prompts, rows_of(cache, lengths), strict=True):
        trunk._read([prompt], row)
    return filled(cache, max(lengths))


def _room(model: PreTrainedModel, columns: int, rows: int = 1) -> DynamicCache:
    return roomy_cache(model.config.num_hidden_layers, columns, rows)


@torch.inference_mode()
def _prefill(
    model: PreTrainedModel, parts: Sequence[Sequence[int]], cache: DynamicCache
) -> None:
    """Read on in each row. Shorter rows are padded on the right, where nothing sees the padding."""
    longest = max(map(len, parts))
    ids = torch.tensor([[*part, *[0] * (longest - len(part))] for part in parts],
                       dtype=torch.long, device=model.device)
    for start in range(0, longest, PART):
        with reading(model):
            model.base_model(input_ids=ids[:, start : start + PART], past_key_values=cache,
                             use_cache=True)


def families(prompts: Sequence[Sequence[int]]) -> list[tuple[list[int], int]]:
    """Prompts grouped by what they share.

    Neighbours in alphabetical order are of one family if neither shares much more with its other
    neighbour.

    Returns
    -------
    list of (list of int, int)
        Indices of the prompts of a family, the longest prompt first, and the number of tokens that
        all of them begin with, which is 0 where it is not worth a reading of its own. The family
        with the longest prompt comes first.
    """
    order = sorted(range(len(prompts)), key=lambda i: tuple(prompts[i]))
    shared = [common_prefix(prompts[a], prompts[b])
              for a, b in zip(order, order[1:], strict=False)]
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
