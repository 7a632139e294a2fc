"""Greedy answers in batches, by prompt lookup, with the key at which each head looks hardest."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rmutils.core.errors import UserError
from rmutils.core.validation import checked
from rmutils.models.changes import register, using
from rmutils.models.engine import drafts
from rmutils.models.engine.caches import filled, stack_caches
from rmutils.models.engine.generation import steps
from rmutils.models.engine.implementations import GROUPED, register_by_layer
from rmutils.models.families import needs_eager
from rmutils.models.head_blocks import attentions, keeps_states

NAME = "retrieval_capture"
RECORDING = {NAME}  # names of the attentions that take a recorder
ALIKE = {"sdpa", "eager", "flex_attention", "flash_attention_2", "flash_attention_3",
         "flash_attention_4", GROUPED}
"""Attentions that compute what `retrieval_capture` computes, unless the model `needs_eager`."""

T = TypeVar("T", bound=Callable[..., tuple[Tensor, Tensor | None]])


class ArgMaxRecorder:
    """Collects, for one pass, the key index with the largest attention of each head."""

    before = 0

    def __init__(self, rows: int = 1) -> None:
        self.rows = rows
        self._layers: dict[int, Tensor] = {}
        self._places: Tensor | None = None

    def among(self, places: Tensor) -> ArgMaxRecorder:
        """Return a view of this recorder for layers that have the keys of some `places` only."""
        part = ArgMaxRecorder(self.rows)
        part._layers, part._places = self._layers, places
        return part

    def see(self, layer: int, products: Tensor, weights: Tensor, value: Tensor,
            output: Tensor) -> None:
        """Take what plain attention knows of a layer: `value`, and `output` of the watched rows."""
        self.record(layer, products.argmax(-1).flatten(1, 2))

    def record(self, layer: int, index: Tensor) -> None:
        """Keep the indices of one layer, shape (batch, heads, rows)."""
        self._layers[layer] = index if self._places is None else self._places[index]

    def take(self) -> Tensor:
        """Empty the recorder; return the indices of all layers, (batch, layers, heads, rows)."""
        if not self._layers:  # as under Nemotron and StableLM
            raise UserError("transformers' layers of this family hand nothing on to their "
                            "attention, so heads cannot be watched, only masked.")
        stacked = torch.stack([self._layers[layer] for layer in sorted(self._layers)], dim=1)
        self._layers.clear()
        return stacked

    def keep(self, decided: Sequence[slice]) -> None:
        """Learn which rows of the pass, for each text, decided a token of its answer."""


def retrieval_capture(module: Any, query: Tensor, key: Tensor, value: Tensor,
                      attention_mask: Tensor | None, *, scaling: float,
                      recorder: ArgMaxRecorder | None = None, **kwargs: Any) -> tuple[Tensor, None]:
    """SDPA that also records the arg-max key of every head, in the rows of the newest tokens."""
    if recorder is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    products = newest_products(query, key, attention_mask, scaling, recorder.rows)
    weights = products.softmax(-1)
    if query.shape[2] > recorder.rows:
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    else:
        output = weights.to(value.dtype).flatten(2, 3) @ value
        output = output.view(*query.shape[:3], -1).transpose(1, 2).contiguous()
    recorder.see(module.layer_idx, products, weights, value, output[:, -recorder.rows :])
    return output, None


def newest_products(query: Tensor, key: Tensor, attention_mask: Tensor | None, scaling: float,
                    rows: int = 1) -> Tensor:
    """Multiply the newest queries with all keys: products before softmax, in float32, (batch, key
    heads, heads that share each, rows, keys); minus infinity where nothing may be seen."""
    # float32: in bfloat16 neighbouring scores tie. Grouped by key head: no copy of the keys.
    batch, key_heads, keys, size = key.shape
    grouped = query[:, :, -rows:].float().reshape(batch, key_heads, -1, size)
    products: Tensor = grouped @ key.float().transpose(2, 3) * scaling
    products = products.view(batch, key_heads, -1, rows, keys)
    if attention_mask is None and rows > 1:
        attention_mask = torch.ones(1, 1, rows, keys, dtype=torch.bool,
                                    device=key.device).tril(keys - rows)
    if attention_mask is not None:
        products = products.masked_fill(~attention_mask[:, :, None, -rows:], -torch.inf)
    return products


@contextmanager
def capturing(model: PreTrainedModel) -> Iterator[ArgMaxRecorder]:
    """Watch where the heads of a model look; on exit all is as before, also after an error."""
    own = model.config._attn_implementation
    if own in RECORDING or own in ALIKE and not needs_eager(model):
        with using(model, own if own in RECORDING else NAME):
            yield ArgMaxRecorder()
        return
    name = f"watched_{own}"
    register(name, _watched(own), own)
    with using(model, name):
        yield ArgMaxRecorder()


def attention_called(own: str, module: Any) -> Callable[..., tuple[Tensor, Tensor | None]]:
    """Return the function that transformers calls for an attention of this name."""
    eager: Any = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    found: Callable[..., Any] = ALL_ATTENTION_FUNCTIONS.get_interface(own, eager)
    return found


@checked
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
        register(name, attention, "eager")
        return attention

    return add


def _watched(own: str) -> Callable[..., tuple[Tensor, Tensor | None]]:
    """Another attention as it is, whose weights a recorder sees."""
    def attention(module: Any, query: Tensor, key: Tensor, value: Tensor,
                  mask: Tensor | None = None, *, recorder: ArgMaxRecorder | None = None,
                  **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        output, weights = attention_called(own, module)(module, query, key, value, mask, **kwargs)
        if recorder is not None:
            if weights is None:
                raise UserError(
                    f"the attention {own!r} says nothing about where the heads look. Let it return "
                    f"its weights, too, (batch, heads, queries, keys), or put transformers' own "
                    f"on: lm.model.set_attn_implementation('eager').")
            newest = torch.unflatten(weights[:, :, -recorder.rows :], 1, (key.shape[1], -1)).float()
            recorder.see(module.layer_idx, newest, newest, value, output[:, -recorder.rows :])
        return output, weights

    return attention


def recording_by_layer(name: str, attention: Callable[..., tuple[Tensor, None]]) -> None:
    """Register an attention that takes a recorder; layers without it use `retrieval_capture`."""
    register_by_layer(name, attention, otherwise=retrieval_capture)
    RECORDING.add(name)


register(NAME, retrieval_capture)


@dataclass(frozen=True)
class Answer:
    """An answer of T tokens: the model's greedy one, or one that was forced on it."""

    tokens: np.ndarray  # (T,) token ids, without the stop token
    # (T, layers, heads): where in the prompt the head looked hardest for the token
    positions: np.ndarray

    def __repr__(self) -> str:
        tokens, layers, heads = self.positions.shape
        return f"Answer({tokens} tokens, {layers} layers x {heads} heads)"


@torch.inference_mode()
def decode(model: PreTrainedModel, recorder: ArgMaxRecorder, prompts: Sequence[Sequence[int]],
           caches: list[DynamicCache], *, max_new_tokens: int = 0, stop_ids: Collection[int] = (),
           forced: Sequence[Sequence[int]] | None = None) -> list[Answer]:
    """Decode greedily, or along given answers, in one batch; no `stop_ids`: to the full length."""
    answers = [None] * len(prompts) if forced is None else forced
    if keeps_states(model):
        return [_in_two_readings(model, recorder, prompt, max_new_tokens, stop_ids, given)
                for prompt, given in zip(prompts, answers, strict=True)]
    if forced is not None:
        max_new_tokens, stop_ids = max(map(len, forced)), ()
    cache, device = stack_caches(caches, room=max_new_tokens), model.device
    longest, stops = cache.get_seq_length(), set(stop_ids)
    rows = [drafts.Row(prompt, max_new_tokens, stops, given)
            for prompt, given in zip(prompts, answers, strict=True)]
    pads = [longest + 1 - len(prompt) for prompt in prompts]
    starts = torch.tensor(pads, device=device)[:, None]
    columns = torch.arange(longest + max_new_tokens, device=device)
    visible = (columns >= starts).long()
    start, pace = -recorder.before, drafts.Pace(drafts.DRAFT if forced is None else max_new_tokens)
    while not all(row.ended for row in rows):
        read = [row.text[:0] if row.ended else row.ahead(start, pace) for row in rows]
        recorder.rows = max(map(len, read))
        first = longest + start
        end = first + recorder.rows
        logits = model(
            input_ids=torch.tensor([[*part, *[0] * (recorder.rows - len(part))] for part in read],
                                   device=device),
            attention_mask=visible[:, :end], position_ids=columns[first:end] - starts,
            past_key_values=filled(cache, first), use_cache=True, recorder=recorder,
            logits_to_keep=0 if forced is None else 1,
        ).logits
        chosen, looked = logits.argmax(-1).cpu().numpy(), recorder.take().cpu().numpy()
        known = [row.said for row in rows]
        for row, *seen in zip(rows, read, chosen, looked, strict=True):
            if not row.ended:
                row.accept(start, *seen)
        recorder.keep([slice(said - start, row.said - start)
                       for said, row in zip(known, rows, strict=True)])
        slowest = min((row.said for row in rows if not row.ended), default=start)
        pace.wrote(slowest - max(start, 0))
        start = slowest
    return [Answer(row.text[row.size : row.size + row.said],
                   np.stack([*row.looked, looked[0, ..., 0]])[:-1] - pad)
            for row, pad in zip(rows, pads, strict=True)]


def _in_two_readings(model: PreTrainedModel, recorder: ArgMaxRecorder, prompt: Sequence[int],
                     max_new_tokens: int, stop_ids: Collection[int],
                     forced: Sequence[int] | None) -> Answer:
    """Let a hybrid answer, then watch it read text and answer at once; layers without heads: -1."""
    said: list[int] = [] if forced is None else [*forced]
    if forced is None:
        reader = steps(model, prompt)
        token = int(next(reader).argmax())
        while token not in stop_ids:
            said.append(token)
            if len(said) == max_new_tokens:
                break
            token = int(reader.send(token).argmax())
    recorder.rows = recorder.before + max(len(said), 1)
    model(input_ids=torch.tensor([[*prompt, *said[:-1]]], device=model.device), use_cache=False,
          recorder=recorder, logits_to_keep=1)
    decided = slice(recorder.before, recorder.before + len(said))
    looked = recorder.take()[0, :, :, decided].permute(2, 0, 1).cpu().numpy()
    recorder.keep([decided])
    positions = np.full((len(said), model.config.num_hidden_layers, looked.shape[2]), -1)
    positions[:, [*attentions(model)]] = looked
    return Answer(np.array(said, int), positions)
