"""Greedy answers, decoded in batches, with the key at which each head looks hardest.

Prefill is done before (`rmutils.models.engine.caches`): the cases of one haystack share the text up
to the needle, which is read once.

Which key a head looks at most is all that a retrieval score needs. `output_attentions=True` would
keep every row of every head, about 4 L H N^2 bytes; here one row per head is reduced to one index.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from transformers import AttentionInterface, DynamicCache, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rmutils.core.errors import UserError
from rmutils.models.engine.caches import stack_caches
from rmutils.models.engine.implementations import GROUPED, register, register_by_layer, using
from rmutils.models.families import caps_scores

NAME = "retrieval_capture"
RECORDING = {NAME}
"""Names of the attentions that take a recorder."""
ALIKE = {"sdpa", "eager", "flex_attention", "flash_attention_2", "flash_attention_3",
         "flash_attention_4", GROUPED}
"""Attentions that compute what `retrieval_capture` computes, unless the model caps its scores."""

T = TypeVar("T", bound=Callable[..., tuple[Tensor, Tensor | None]])


class ArgMaxRecorder:
    """Collects, for one forward pass, the key index with the largest attention of each head."""

    def __init__(self) -> None:
        self._layers: dict[int, Tensor] = {}
        self._places: Tensor | None = None

    def among(self, places: Tensor) -> ArgMaxRecorder:
        """Return a view of this recorder for layers that have the keys of some places only.

        Parameters
        ----------
        places : Tensor
            (keys,): where each key stands in the text.
        """
        part = ArgMaxRecorder()
        part._layers, part._places = self._layers, places
        return part

    def record(self, layer: int, index: Tensor) -> None:
        """Keep the indices of one layer, shape (batch, heads)."""
        self._layers[layer] = index if self._places is None else self._places[index]

    def take(self) -> Tensor:
        """Return the indices of all layers, (batch, layers, heads), and empty the recorder."""
        stacked = torch.stack([self._layers[layer] for layer in sorted(self._layers)], dim=1)
        self._layers.clear()
        return stacked


def retrieval_capture(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    recorder: ArgMaxRecorder | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention that also records the arg-max key of every head, in the row of the newest token.

    Without a `recorder` (prefill) it is SDPA and nothing else. The recorder travels as a keyword
    argument of the model's `forward`.

    Parameters
    ----------
    query : Tensor
        (batch, heads, queries, head size).
    key, value : Tensor
        (batch, key heads, keys, head size); query head h reads key head h // (heads / key heads).
    attention_mask : Tensor or None
        (batch, 1, queries, keys): True where a key may be seen.

    Returns
    -------
    Tensor, None
        (batch, queries, heads, head size), as transformers expects.
    """
    if recorder is not None:
        products = newest_products(query, key, attention_mask, scaling)
        recorder.record(module.layer_idx, products.argmax(-1).flatten(1))
    if recorder is None or query.shape[2] > 1:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
    output = products.softmax(-1).to(value.dtype) @ value
    return output.reshape(len(query), 1, query.shape[1], -1), None


def newest_products(
    query: Tensor, key: Tensor, attention_mask: Tensor | None, scaling: float
) -> Tensor:
    """Multiply the newest query with all keys: products before softmax, in float32.

    Shapes are those of `retrieval_capture`.

    Returns
    -------
    Tensor
        (batch, key heads, heads that share each, keys); minus infinity where nothing may be seen.
    """
    # float32: in bfloat16 neighbouring scores tie. Grouped by key head: no copy of the keys.
    grouped = query[:, :, -1].float().view(len(query), key.shape[1], -1, query.shape[-1])
    products: Tensor = grouped @ key.float().transpose(2, 3) * scaling
    if attention_mask is not None:
        products = products.masked_fill(~attention_mask[:, :, -1:], -torch.inf)
    return products


@contextmanager
def capturing(model: PreTrainedModel) -> Iterator[ArgMaxRecorder]:
    """Watch where the heads of a model look; on exit all is as before, also after an error.

    The attentions of transformers are exchanged for `retrieval_capture`, which computes the same. A
    variant of attention that takes a recorder (`recording_by_layer`) stays as it is. So does any
    other attention, as one of your own or one that caps its scores (Gemma 2): the weights that it
    returns beside its output are watched.

    Raises
    ------
    UserError
        While the model reads: its attention returns no weights.
    """
    own = model.config._attn_implementation
    if own in RECORDING or own in ALIKE and not caps_scores(model.config):
        with using(model, own if own in RECORDING else NAME):
            yield ArgMaxRecorder()
        return
    name = f"watched_{own}"
    AttentionInterface.register(name, _watched(own))
    if own in ALL_MASK_ATTENTION_FUNCTIONS:
        AttentionMaskInterface.register(name, ALL_MASK_ATTENTION_FUNCTIONS[own])
    with using(model, name):
        yield ArgMaxRecorder()


def register_attention(name: str) -> Callable[[T], T]:
    """Return a decorator that makes an attention of your own known to transformers, by a name.

    `lm.model.set_attn_implementation(name)` puts it on a model; from then on everything in this
    project uses it. The weights that it returns say where each head looks: `detect` needs them.

    Parameters
    ----------
    name : str
        The function is called with the layer's module; queries (batch, heads, queries, head size);
        keys and values (batch, key heads, keys, head size); a mask (batch, 1, queries, keys), 0 or
        minus infinity, to be added to the scores; and keyword arguments, `scaling` among them. It
        returns the output (batch, queries, heads, head size) and the weights (batch, heads,
        queries, keys).

    Examples
    --------
    >>> from rmutils import DetectConfig, detect, load_model, register_attention
    >>> @register_attention("sharper")  # scores twice as large
    ... def sharper(module, query, key, value, mask, *, scaling, **kwargs):
    ...     share = query.shape[1] // key.shape[1]  # query heads for each key head
    ...     key, value = (t.repeat_interleave(share, 1) for t in (key, value))
    ...     weights = (2 * scaling * query @ key.transpose(2, 3) + mask).softmax(-1)
    ...     return (weights @ value).transpose(1, 2), weights
    >>> lm = load_model("tiny-llama", device="cpu")
    >>> lm.model.set_attn_implementation("sharper")
    >>> scores = detect(lm, DetectConfig(lengths=(256,), needles=1, max_new_tokens=16))
    >>> scores.shape
    (4, 16)
    """
    def add(attention: T) -> T:
        AttentionInterface.register(name, attention)
        AttentionMaskInterface.register(name, ALL_MASK_ATTENTION_FUNCTIONS["eager"])
        return attention

    return add


def _watched(own: str) -> Callable[..., tuple[Tensor, Tensor | None]]:
    """Another attention as it is, which also records where the weights are largest."""
    def attention(
        module: Any, query: Tensor, *tensors: Tensor | None,
        recorder: ArgMaxRecorder | None = None, **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        eager: Any = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
        output, weights = ALL_ATTENTION_FUNCTIONS.get_interface(own, eager)(
            module, query, *tensors, **kwargs)
        if recorder is not None:
            if weights is None:
                raise UserError(
                    f"the attention {own!r} says nothing about where the heads look, so they "
                    f"cannot be watched. Let it return its weights beside its output, (batch, "
                    f"heads, queries, keys); or load the model with attn_implementation='eager'.")
            recorder.record(module.layer_idx, weights[:, :, -1].argmax(-1))
        return output, weights

    return attention


def recording_by_layer(name: str, attention: Callable[..., tuple[Tensor, None]]) -> None:
    """Register an attention that takes a recorder; layers without it use `retrieval_capture`."""
    register_by_layer(name, attention, otherwise=retrieval_capture)
    RECORDING.add(name)


register(NAME, retrieval_capture)


NOTHING = -1
"""Stands for a token behind the end of a forced answer."""


@dataclass(frozen=True)
class Answer:
    """An answer of T tokens: the model's greedy one, or one that was forced on it.

    Attributes
    ----------
    tokens : ndarray
        (T,) token ids, without the stop token.
    positions : ndarray
        (T, layers, heads): prompt position at which the head looked hardest in the row that decided
        the token.
    """

    tokens: np.ndarray
    positions: np.ndarray

    def __repr__(self) -> str:
        tokens, layers, heads = self.positions.shape
        return f"Answer({tokens} tokens, {layers} layers x {heads} heads)"


@torch.inference_mode()
def decode(
    model: PreTrainedModel,
    recorder: ArgMaxRecorder,
    prompts: Sequence[Sequence[int]],
    caches: list[DynamicCache],
    *,
    max_new_tokens: int = 0,
    stop_ids: Collection[int] = (),
    forced: Sequence[Sequence[int]] | None = None,
) -> list[Answer]:
    """Decode greedily, or along given answers, in one batch.

    Parameters
    ----------
    prompts : sequence of sequences of int
        B prompts of any length.
    caches : list of DynamicCache
        Their prefilled caches (all tokens but the last), one for each prompt or for all, padded on
        the left. They are emptied, to save memory.
    stop_ids : collection of int
        Tokens that end an answer; empty: every answer has `max_new_tokens` tokens.
    forced : sequence of sequences of int, optional
        B answers, of any length, to be written in place of the model's own choice (teacher
        forcing). The other two parameters are then ignored.
    """
    if forced is not None:
        max_new_tokens, stop_ids = max(map(len, forced)), {NOTHING}
        given = torch.tensor([*zip_longest(*forced, fillvalue=NOTHING)], device=model.device)
    cache = stack_caches(caches, room=max_new_tokens)
    step = torch.tensor([[p[-1]] for p in prompts], device=model.device)
    longest = cache.get_seq_length()
    pads = [longest + 1 - len(prompt) for prompt in prompts]
    columns = torch.arange(longest + max_new_tokens, device=model.device)
    visible = (columns >= torch.tensor(pads, device=model.device)[:, None]).long()
    position = torch.tensor([[len(p) - 1] for p in prompts], device=model.device)
    tokens, looked = [], []
    ended = np.zeros(len(prompts), dtype=bool)
    for t in range(max_new_tokens):
        logits = model(
            input_ids=step, attention_mask=visible[:, : longest + t + 1], position_ids=position + t,
            past_key_values=cache, use_cache=True, recorder=recorder,
        ).logits
        chosen = logits[:, -1].argmax(-1) if forced is None else given[t]
        tokens.append(chosen.cpu().numpy())
        step = chosen.clamp(min=0)[:, None]  # behind its end an answer is fed anything
        looked.append(recorder.take().cpu().numpy())
        ended |= np.isin(tokens[-1], list(stop_ids))
        if ended.all():
            break
    return _answers(np.stack(tokens, 1), np.stack(looked, 1), pads, stop_ids)


def _answers(
    tokens: np.ndarray, looked: np.ndarray, pads: list[int], stop_ids: Collection[int]
) -> list[Answer]:
    """Cut each row of the batch at its first stop token; indices become prompt positions."""
    answers = []
    for row, seen, pad in zip(tokens, looked, pads, strict=True):
        stops = np.flatnonzero(np.isin(row, list(stop_ids)))
        end = stops[0] if len(stops) else len(row)
        answers.append(Answer(row[:end], seen[:end] - pad))
    return answers
