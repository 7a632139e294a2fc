"""Documents put into training instances of one length: best fit, and cut wherever they end."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask
from transformers import PreTrainedModel

from rmutils.core.errors import UserError


@dataclass(frozen=True)
class Packing:
    """Pieces of documents and the instances that they lie in, a row each in the arrays."""

    capacity: int  # tokens of an instance
    document: np.ndarray  # whose piece it is
    start: np.ndarray  # its first token there
    length: np.ndarray  # its tokens
    instance: np.ndarray  # where it lies

    @property
    def instances(self) -> int:
        """How many instances there are."""
        return int(self.instance.max()) + 1

    @property
    def padding(self) -> int:
        """Tokens of all instances that no document fills."""
        return self.instances * self.capacity - int(self.length.sum())

    def lengths(self, instances: Sequence[int]) -> list[list[int]]:
        """Tokens of the pieces of some instances, each in their order."""
        return [self.length[self.instance == number].tolist() for number in instances]

    @property
    def cut(self) -> int:
        """Documents that lie in more than one piece."""
        return int((np.unique(self.document, return_counts=True)[1] > 1).sum())


def concatenate_and_split(lengths: Sequence[int], capacity: int) -> Packing:
    """Lay all documents end to end and cut every `capacity` tokens."""
    lengths = _checked(lengths, capacity)
    ends = np.cumsum(lengths)
    borders = np.union1d(ends, np.arange(capacity, ends[-1], capacity))
    first = np.concatenate([[0], borders[:-1]])
    document = np.searchsorted(ends, first, side="right")
    return Packing(capacity, document, first - (ends - lengths)[document], borders - first,
                   first // capacity)


def best_fit(lengths: Sequence[int], capacity: int) -> Packing:
    """Best-fit packing: longest first, each into the instance that it leaves least room in; only
    documents that are longer than an instance are cut. Ding et al. (2024), "Fewer Truncations
    Improve Language Modeling"; the Olmo 3 recipe, "Best-fit Packing"."""
    lengths = _checked(lengths, capacity)
    whole, rest = np.divmod(lengths, capacity)
    full = np.repeat(np.arange(len(lengths)), whole)
    place = np.arange(len(full)) - np.repeat(np.cumsum(whole) - whole, whole)
    left = np.flatnonzero(rest)
    left = left[np.argsort(-rest[left], kind="stable")]
    instance = _fit(rest[left].tolist(), capacity)
    return Packing(
        capacity, np.concatenate([full, left]),
        np.concatenate([place, whole[left]]) * capacity,
        np.concatenate([np.full(len(full), capacity), rest[left]]),
        np.concatenate([np.arange(len(full)), np.array(instance, dtype=int) + len(full)]))


def _fit(lengths: list[int], capacity: int) -> list[int]:
    """Instance of each length, of `capacity` at most; one is opened when none has room."""
    rooms: list[int] = []  # rooms that some open instance has, each once, the smallest first
    having: dict[int, list[int]] = {}
    placed, opened = [], 0
    for length in lengths:
        place, room = bisect_left(rooms, length), capacity
        if place < len(rooms):
            room = rooms[place]
            instance = having[room].pop()
            if not having[room]:
                del rooms[place]
        else:
            instance, opened = opened, opened + 1
        if left := room - length:
            if not having.setdefault(left, []):
                insort(rooms, left)
            having[left].append(instance)
        placed.append(instance)
    return placed


def _checked(lengths: Sequence[int], capacity: int) -> np.ndarray:
    found = np.asarray(lengths, dtype=np.int64)
    if capacity < 1 or not len(found) or found.min() < 1:
        raise UserError(f"nothing to pack: {len(found)} documents, the shortest of "
                        f"{found.min(initial=0)} tokens, into instances of {capacity}. Each has to "
                        f"have a token at least.")
    return found


NO_LABEL = -100
PADDING = -1
BLOCK = 128  # tokens of a block of FlexAttention
Masks = Tensor | BlockMask | dict[str, Tensor | BlockMask]


def packed_inputs(model: PreTrainedModel, rows: Sequence[Sequence[Sequence[int]]], *, length: int,
                  pad_id: int) -> dict[str, Tensor | Masks]:
    """Return the arguments of a model's `forward` for instances of several documents."""
    if (model.config._attn_implementation == "flex_attention" and model.device.type == "cpu"
            and length % BLOCK):
        raise UserError(f"flex_attention on a CPU needs a length that is a multiple of {BLOCK}, "
                        f"not {length}.")
    ids = torch.full((len(rows), length), pad_id)
    documents, positions = torch.full_like(ids, PADDING), torch.zeros_like(ids)
    labels = torch.full_like(ids, NO_LABEL)
    for i, row in enumerate(rows):
        if (held := sum(map(len, row))) > length:
            raise UserError(f"instance {i} holds {held} tokens, and {length} are allowed.")
        at = 0
        for number, document in enumerate(row):
            here = slice(at, at + len(document))
            ids[i, here] = torch.tensor(document)
            documents[i, here], positions[i, here] = number, torch.arange(len(document))
            labels[i, at + 1:here.stop] = ids[i, at + 1:here.stop]
            at = here.stop
    device = model.device
    return {"input_ids": ids.to(device), "position_ids": positions.to(device),
            "labels": labels.to(device),
            "attention_mask": document_masks(model, documents.to(device))}


def document_masks(model: PreTrainedModel, documents: Tensor) -> Masks:
    """Masks by which a token sees only what stands before it in its own document."""
    how, config = model.config._attn_implementation, model.config
    if how not in ("sdpa", "eager", "flex_attention"):
        raise UserError(f"{how} takes no mask of documents. Load the model with "
                        f"attn_implementation='sdpa'.")
    kinds = set(getattr(config, "layer_types", None) or ())
    make = _blocks if how == "flex_attention" else _dense
    masks = {kind: make(_sees(documents, config.sliding_window if "sliding" in kind else None),
                        documents, model)
             for kind in kinds or {"full_attention"}}
    return masks if kinds else masks["full_attention"]


def _sees(documents: Tensor, window: int | None) -> Callable[..., Tensor]:
    """The rule: (row, head, query, key) -> whether that key is seen."""
    def rule(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        seen = (key <= query) & (documents[row, query] == documents[row, key])
        return seen & (query - key < window) if window else seen

    return rule


def _dense(rule: Callable[..., Tensor], documents: Tensor, model: PreTrainedModel) -> Tensor:
    rows, length = (torch.arange(n, device=documents.device) for n in documents.shape)
    seen = rule(rows[:, None, None, None], None, length[:, None], length)
    if model.config._attn_implementation == "eager":  # which adds it to the scores
        return torch.zeros_like(seen, dtype=model.dtype).masked_fill(
            ~seen, torch.finfo(model.dtype).min)
    return seen


def _blocks(rule: Callable[..., Tensor], documents: Tensor, model: PreTrainedModel) -> BlockMask:
    return create_block_mask(rule, len(documents), None, *[documents.shape[1]] * 2,
                             device=documents.device)


def leak(model: PreTrainedModel, inputs: dict, **more) -> float:
    """How much the last document of an instance depends on the first, which it must not see."""
    ids = inputs["input_ids"]
    other = ids.clone()
    other[:, 0] = (ids[:, 0] + 1) % model.config.vocab_size
    with torch.inference_mode():
        before, after = (model(**inputs | {"input_ids": each}, **more).logits
                         for each in (ids, other))
    others = (inputs["position_ids"] == 0).cumsum(-1) > 1
    return float((before - after).abs().amax(-1)[others].max())
