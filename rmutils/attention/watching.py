"""Attention rows and head outputs of real runs, kept as they come and without all the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedModel

from rmutils.attention import decoding
from rmutils.core.errors import UserError
from rmutils.core.validation import checked
from rmutils.models import LanguageModel
from rmutils.models.changes import register, using
from rmutils.models.engine.implementations import attached
from rmutils.models.families import needs_eager
from rmutils.models.head_blocks import attentions, before_each, projections
from rmutils.models.known_models import check

WATCHED = "watched_rows"
"""The attention of watched layers, and the attribute by which they find who watches."""
What = Literal["weights", "outputs"]
Floats = NDArray[np.float32]


@dataclass(eq=False)
class Watched:
    """What the heads of some layers did in each pass of the model: one tensor per pass."""

    layers: tuple[int, ...]  # the L layers
    # (texts, L, heads, rows, keys), float32 on the CPU: the attention that a row gives to each key,
    # which sums to 1 but for sinks. The last key is the newest; in layers that keep the keys of a
    # window only, those before are 0.
    weights: list[Tensor] = field(default_factory=list)
    # (texts, L, heads, rows, head size): what each head hands to the output projection
    outputs: list[Tensor] = field(default_factory=list)

    def __repr__(self) -> str:
        passes = max(len(self.weights), len(self.outputs))
        return f"Watched({passes} passes, {len(self.layers)} layers)"


class _Watcher:
    """Takes the rows of one pass layer by layer, and adds them to `Watched` when it ends."""

    def __init__(self, found: Watched, rows: tuple[int, ...] | None):
        self.found, self.rows = found, rows
        self.weights: dict[int, Tensor] = {}
        self.outputs: dict[int, Tensor] = {}

    def among(self, count: int) -> list[int]:
        """Return which of a pass's rows are watched."""
        rows = range(count) if self.rows is None else self.rows
        for row in rows:
            if not -count <= row < count:
                raise UserError(f"row {row} cannot be watched: this pass reads "
                                f"{count} token{'s' * (count > 1)}. Row -1 is in every pass.")
        return [row % count for row in rows]

    def begin(self, module: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
        self.weights.clear()
        self.outputs.clear()
        if getattr(kwargs.get("past_key_values"), "is_compileable", False):
            raise UserError("a cache of a fixed size has keys that nobody wrote, so its rows "
                            "cannot be watched. Take transformers' DynamicCache, the default.")

    def see_output(self, layer: int, output: Tensor) -> None:
        rows = self.among(output.shape[1])
        self.outputs[layer] = output.detach()[:, rows].transpose(1, 2).float().cpu()

    def see_weights(self, layer: int, weights: Tensor) -> None:
        """Take (batch, heads, rows, keys) of the rows that are watched."""
        self.weights[layer] = weights.detach().float().nan_to_num(0.0).cpu()  # of a row of padding

    def end(self, *_: Any) -> None:
        if self.weights:
            longest = max(part.shape[-1] for part in self.weights.values())
            self.found.weights.append(torch.stack(
                [pad(self.weights[layer], (longest - self.weights[layer].shape[-1], 0))
                 for layer in self.found.layers], 1))
        if self.outputs:
            self.found.outputs.append(torch.stack(
                [self.outputs[layer] for layer in self.found.layers], 1))


@checked
@contextmanager
def watch(lm: LanguageModel, what: What | tuple[What, ...] = ("weights", "outputs"),
          layers: int | tuple[int, ...] | None = None,
          rows: int | tuple[int, ...] | None = -1) -> Iterator[Watched]:
    """Watch heads while the model reads and writes, in whatever way it is asked to.

    Only the rows that are asked for are kept, where `output_attentions=True` would keep all. On
    exit the model is as before, also after an error.

    Parameters
    ----------
    lm : LanguageModel
    what : {"weights", "outputs"}, or both
        The attention of each row to all keys; what each head hands to the output projection.
    layers : int or sequence of int, optional
        Default: all layers that have heads.
    rows : int or sequence of int, optional
        Which tokens of each pass, from its first (0) or its last one (-1, the default; where texts
        are padded, pad them on the left). None: all.

    Returns
    -------
    Watched
        It fills while the model runs: `weights` and `outputs` get a tensor with each pass.

    Raises
    ------
    UserError
        There is nothing to watch; another `watch` takes the weights; there is no such layer, or,
        while the model runs, no such row; the model's attention says nothing of its weights; the
        cache has a fixed size.

    Examples
    --------
    >>> import torch
    >>> from rmutils import load_model, watch
    >>> lm = load_model("tiny-llama", device="cpu")
    >>> ids = torch.tensor([lm.render("The key is in the jar. Where is the key?")])
    >>> with watch(lm, layers=(2, 3)) as seen:
    ...     out = lm.model.generate(ids, max_new_tokens=3, do_sample=False)
    >>> seen  # the prompt, then the first two of the new tokens
    Watched(3 passes, 2 layers)
    >>> seen.weights[0].shape, seen.outputs[0].shape  # one text, layers, heads, rows, ...
    (torch.Size([1, 2, 16, 1, 16]), torch.Size([1, 2, 16, 1, 32]))
    >>> key = seen.weights[0][0, 1, 7, 0].argmax()  # what head 3-7 looks at
    >>> lm.tokenizer.decode(ids[0, key])
    ' the'
    """
    check(lm)
    for name, given in {"what": what, "layers": layers, "rows": rows}.items():
        if given == ():
            raise UserError(f"{name}: none are given, so there is nothing to watch.")
        if isinstance(given, tuple) and len({*given}) < len(given):
            raise UserError(f"{name}: {given} names one of them twice.")
    known = lm.layers
    asked = known if layers is None else sorted({layers} if isinstance(layers, int) else {*layers})
    for layer in asked:
        if layer not in known:
            raise UserError(f"{lm.name} has no heads in a layer {layer}: those that have are "
                            f"{', '.join(map(str, known))}.")
    found = Watched(tuple(asked))
    watcher = _Watcher(found, (rows,) if isinstance(rows, int) else rows)
    with ExitStack() as stack:
        if "outputs" in what:
            stack.enter_context(head_outputs(lm, asked, watcher.see_output))
        if "weights" in what:
            stack.enter_context(_weights_of(lm.model, asked, watcher))
        for hook in (
                lm.model.base_model.register_forward_pre_hook(watcher.begin, with_kwargs=True),
                lm.model.base_model.register_forward_hook(watcher.end)):
            stack.callback(hook.remove)
        yield found


@contextmanager
def head_outputs(lm: LanguageModel, layers: Sequence[int],
                 take: Callable[[int, Tensor], None]) -> Iterator[None]:
    """Hand on what each layer's output projection reads, (batch, queries, heads, head size)."""
    def read(layer: int, module: Any, inputs: tuple[Tensor, ...]) -> None:
        take(layer, inputs[0].view(*inputs[0].shape[:-1], lm.shape[1], -1))

    outputs = projections(lm.model)
    with before_each({layer: outputs[layer] for layer in layers}, read):
        yield


@contextmanager
def _weights_of(model: PreTrainedModel, layers: Sequence[int], watcher: _Watcher) -> Iterator[None]:
    """Hand the weights of each layer to a watcher."""
    own = model.config._attn_implementation
    if str(own).startswith(WATCHED):
        raise UserError("the weights of this model are being watched already. Watch all that you "
                        "want at once, or leave the other `watch` first.")
    if own in {*decoding.ALIKE, decoding.NAME} and not needs_eager(model):
        with attached(model, WATCHED, dict.fromkeys(layers, watcher)):
            yield
        return
    modules = [attentions(model)[layer] for layer in layers]
    name = f"{WATCHED}_of_{own}"
    register(name, _taken(own), own)
    try:
        for module in modules:
            setattr(module, WATCHED, watcher)
        with using(model, name):
            yield
    finally:
        for module in modules:
            module.__dict__.pop(WATCHED, None)


def _computed(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
              *, scaling: float, given: _Watcher, **kwargs: Any) -> tuple[Tensor, None]:
    """`retrieval_capture`, with the weights of some rows computed beside it."""
    queries, keys = query.shape[2], key.shape[2]
    rows = given.among(queries)
    visible = attention_mask
    if visible is None:
        visible = torch.ones(1, 1, queries, keys, dtype=torch.bool,
                             device=key.device).tril(keys - queries)
    products = decoding.newest_products(query[:, :, rows], key, visible[:, :, rows], scaling,
                                        len(rows))
    given.see_weights(module.layer_idx, products.softmax(-1).flatten(1, 2))
    return decoding.retrieval_capture(module, query, key, value, attention_mask, scaling=scaling,
                                      **kwargs)


def _taken(own: str) -> Callable[..., tuple[Tensor, Tensor | None]]:
    """Another attention as it is, whose weights a watcher of the layer gets."""
    def attention(module: Any, query: Tensor, *tensors: Tensor | None,
                  **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        output, weights = decoding.attention_called(own, module)(module, query, *tensors, **kwargs)
        if watcher := module.__dict__.get(WATCHED):
            if weights is None:
                raise UserError(f"the attention {own!r} says nothing about its weights, so they "
                                "cannot be watched. Watch the outputs alone, or let it return them "
                                "beside its output, (batch, heads, queries, keys).")
            watcher.see_weights(module.layer_idx, weights[:, :, watcher.among(query.shape[2])])
        return output, weights

    return attention


decoding.recording_by_layer(WATCHED, _computed)


@dataclass(frozen=True)
class RowsAnswer(decoding.Answer):
    """An answer of T tokens to a prompt of P, with the rows that decided its tokens."""

    # (T, layers, heads, P + T - 1): attention to all tokens so far, 0 for later ones; empty if not
    # asked for
    weights: Floats
    # (T, layers, heads, head size), what each head hands to the output projection; likewise
    outputs: Floats


class RowsRecorder(decoding.ArgMaxRecorder):
    """Also keeps weights and outputs of the rows that decide tokens of an answer."""

    def __init__(self, what: Collection[What], texts: int):
        super().__init__()
        self.what = what
        self._weights: dict[int, Tensor] = {}
        self._outputs: dict[int, Tensor] = {}
        self._kept: dict[str, list[list[Tensor]]] = {
            name: [[] for _ in range(texts)] for name in ("weights", "outputs")}

    def see(self, layer: int, products: Tensor, weights: Tensor, value: Tensor,
            output: Tensor) -> None:
        super().see(layer, products, weights, value, output)
        if "weights" in self.what:
            self._weights[layer] = weights.flatten(1, 2)

    def see_output(self, layer: int, output: Tensor) -> None:
        """Take what `head_outputs` hands on."""
        self._outputs[layer] = output[:, -self.rows:].transpose(1, 2)

    def keep(self, decided: Sequence[slice]) -> None:
        for name, layers in (("weights", self._weights), ("outputs", self._outputs)):
            for text, rows in enumerate(decided if layers else ()):
                self._kept[name][text].append(torch.stack(
                    [layers[layer][text, :, rows] for layer in sorted(layers)]).float().cpu())
            layers.clear()

    def answer(self, text: int, answer: decoding.Answer, prompt: int, longest: int) -> RowsAnswer:
        """Return a text's answer with its rows; its prompt has so many tokens of the longest."""
        keys = prompt + len(answer.tokens) - 1
        weights = [pad(part[..., longest - prompt:], (0, keys))[..., :keys]
                   for part in self._kept["weights"][text]]
        return RowsAnswer(answer.tokens, answer.positions, *(
            torch.cat(parts, 2).permute(2, 0, 1, 3).numpy() if parts else np.zeros(0, np.float32)
            for parts in (weights, self._kept["outputs"][text])))
