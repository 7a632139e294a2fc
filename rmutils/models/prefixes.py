"""Texts that begin alike are read once up to where they part.

Reading takes most of the time of a long prompt. The cases of one haystack, the questions to one
book, and all prompts with the same demonstrations begin with the same tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import DynamicCache, PreTrainedModel

from rmutils.models.attention import reading

WORTH = 64
"""A shared beginning of fewer tokens is not worth a reading of its own."""
PART = 512
"""Where there is something before them, so many tokens are read at once: without the shortcut for
causal attention, which then does not apply, what the mask hides is computed, too."""


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
        known = known if known >= WORTH else 0
        self.cache = before.part(known) if known else DynamicCache()
        _prefill(model, [self.ids[known:]], self.cache)

    def part(self, tokens: int, rows: int = 1) -> DynamicCache:
        """The cache of its first tokens, for so many rows."""
        # No config is given: sliding layers keep all positions, so indices are prompt positions
        # and the masks alone make the window.
        return DynamicCache([tuple(tensor[:, :, :tokens].expand(rows, -1, -1, -1)
                                   for tensor in (layer.keys, layer.values))
                             for layer in self.cache.layers] if tokens else None)

    def read(self, prompt: Sequence[int]) -> DynamicCache:
        """Cache of all tokens of `prompt` but the last; the shared ones are not recomputed."""
        return self.read_all([prompt])[0]

    def read_all(self, prompts: Sequence[Sequence[int]]) -> list[DynamicCache]:
        """`read` for each prompt, in one batch. What only some of them share is read by each."""
        known = min(common_prefix(self.ids, prompt[:-1]) for prompt in prompts)
        known = known if known >= WORTH else 0
        cache = self.part(known, len(prompts))
        _prefill(self.model, [prompt[known:-1] for prompt in prompts], cache)
        if len(prompts) == 1:
            return [cache]
        return [DynamicCache([(layer.keys[i : i + 1, :, : len(prompt) - 1],
                               layer.values[i : i + 1, :, : len(prompt) - 1])
                              for layer in cache.layers] or None)
                for i, prompt in enumerate(prompts)]


@torch.inference_mode()
def _prefill(
    model: PreTrainedModel, parts: Sequence[Sequence[int]], cache: DynamicCache
) -> None:
    """Read on in each row. Shorter rows are padded on the right, where nothing sees the padding."""
    longest = max(map(len, parts))
    ids = torch.tensor([[*part, *[0] * (longest - len(part))] for part in parts],
                       dtype=torch.long, device=model.device)
    size = PART if cache.get_seq_length() else max(longest, 1)
    for start in range(0, longest, size):
        with reading(model):
            model.base_model(input_ids=ids[:, start : start + size], past_key_values=cache,
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
