"""What stands between a head and the logits: a norm after attention, factors.

A head h writes W_O^h z_h. Olmo 3 and Gemma norm the sum over all heads before it joins the residual
stream; Granite multiplies it there, and divides the logits. With the row's own root mean square,
such a norm is a product, in which each head has its part. All this is measured, not looked up:
layers get known rows in place of what they compute.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import PreTrainedModel

from rmutils.core.errors import UserError
from rmutils.models.head_blocks import attentions, projections

SMALL = 2.0**-10  # logits so small that a cap on them (Gemma 2) does nothing
ROUNDING = 0.01
CORRECTED = frozenset((
    "afmoe", "cohere", "cohere2", "cohere2_moe", "exaone4", "flex_olmo", "gemma3", "gemma3_text",
    "gemma4", "gemma4_text", "glm4", "granite", "granite_swa", "granitemoe", "granitemoe_swa",
    "granitemoeshared", "hyperclovax", "minicpm3", "minimax", "olmo2", "olmo3"))
"""Families whose results up to version 1.0 left out what lies between. Theirs have other keys now;
those of all other families are what they were."""
_KNOWN: WeakKeyDictionary[PreTrainedModel, ResidualPaths] = WeakKeyDictionary()


def contributions_version(family: str | None) -> dict[str, str]:
    """Return what results of a family with scores of contributions have among their inputs."""
    return {"contributions": "2"} if family is None or family in CORRECTED else {}


@dataclass(frozen=True)
class ResidualPaths:
    """The way from each layer's heads to the residual stream, and from there to the logits."""

    norms: dict[int, nn.Module | None]  # layer -> the norm after its attention
    factors: dict[int, float]  # layer -> what its attention is multiplied by, besides
    logits: float  # what the products with the output matrix are multiplied by

    def through(self, layer: int, rows: Tensor, written: Tensor) -> Tensor:
        """Take `rows` (S, hidden size) of the output matrix back to the output projection of a
        layer whose heads write `written` (S, hidden size) together; the product of the result with
        W_O^h z_h is what head h adds to the logits."""
        norm = self.norms[layer]
        if norm is not None:
            share = norm(written) / written
            rows = rows * torch.where(written == 0, 0, share)
        return rows * (self.factors[layer] * self.logits)


def residual_paths(model: PreTrainedModel) -> ResidualPaths:
    """Measure what stands between heads and logits."""
    if model not in _KNOWN:
        _KNOWN[model] = _measure(model)
    return _KNOWN[model]


def read_back(model: PreTrainedModel, layer: int, rows: Tensor, whole: Tensor) -> Tensor:
    """Return what one has to multiply heads' outputs by, (S, heads, head size), for S logits."""
    projection = projections(model)[layer]
    weight, bias = (None if part is None else part.float() for part in (
        projection.weight, projection.bias))
    written = linear(whole.transpose(0, 1).flatten(1), weight, bias)
    back = residual_paths(model).through(layer, rows, written) @ weight
    return back.view(len(rows), len(whole), whole.shape[-1])


@torch.inference_mode()
def _measure(model: PreTrainedModel) -> ResidualPaths:
    first = _Probe(model, writing=True)
    factors, signs = {}, _signs(model.config.hidden_size)
    for i, own in first.written.items():
        found, expected = (part.double().flatten() for part in (
            first.left[i], first.outcomes.get(i, own)))
        factors[i] = float(found @ expected / (expected @ expected))
        if not (found - factors[i] * expected).norm() <= ROUNDING * found.norm() or (
                i in first.norms and not _is_rms(first.norms[i], own, first.outcomes[i])):
            raise _unknown(model, i)
    for i, left in _Probe(model, writing=False).left.items():
        if not torch.equal(left.flatten().cpu().float(), signs):
            raise _unknown(model, i)
    return ResidualPaths({i: first.norms.get(i) for i in factors}, factors, first.logits)


def _unknown(model: PreTrainedModel, layer: int) -> UserError:
    return UserError(
        f"{model.config.model_type}: in layer {layer}, more than a norm and a factor stands "
        f"between heads and logits, so what a head adds to one is not known. Choose the score "
        f"'copy'.")


def _signs(size: int) -> Tensor:
    return 2.0 * torch.randint(2, (size,), generator=torch.Generator().manual_seed(0)) - 1


class _Probe:
    """One token, read by layers with known rows in place of what their parts compute. With
    `writing`, heads write a row of signs, and nothing enters a layer; without it, the reverse. All
    else in a layer is silent, but for a norm that takes the very row that the heads write."""

    def __init__(self, model: PreTrainedModel, *, writing: bool):
        self.writing = writing
        # layer -> what its heads write, and what leaves it
        self.written, self.left = dict[int, Tensor](), dict[int, Tensor]()
        # layer -> the norm after its attention, and what that returns; where there is one
        self.norms, self.outcomes = dict[int, nn.Module](), dict[int, Tensor]()
        ends: list[Tensor] = []
        whole: Any = model
        with ExitStack() as hooks:
            def on(module: nn.Module, hook: Callable[..., Any], *, before: bool = False) -> None:
                add = module.register_forward_pre_hook if before else module.register_forward_hook
                hooks.callback(add(hook).remove)

            places = attentions(model)
            for i, projection in projections(model).items():
                layer = whole.base_model.layers[i]
                on(layer, self._enter, before=True)
                on(projection, partial(self._write, i))
                for part in layer.children():
                    if part is not places[i] and not isinstance(part, nn.Dropout):
                        on(part, partial(self._silence, i))
                on(layer, partial(self._leave, i))
            on(whole.base_model, lambda _, given, output: ends.append(output[0]))
            head = whole.get_output_embeddings()
            on(head, lambda _, given: ends.append(given[0]), before=True)
            on(head, lambda _, given, output: torch.full_like(output, SMALL))
            logits = model(torch.zeros(1, 1, dtype=torch.long, device=model.device),
                           use_cache=False).logits
        last, taken = (end.double().flatten() for end in ends)
        self.logits = float(logits.double().mean() / SMALL * (taken @ last / (last @ last)))

    def _row(self, like: Tensor, *, filled: bool) -> Tensor:
        row = _signs(like.shape[-1]).to(like) if filled else torch.zeros_like(like)
        return row.expand_as(like).contiguous()

    def _enter(self, module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._row(given[0], filled=not self.writing), *given[1:])

    def _write(self, layer: int, module: nn.Module, given: object, output: Tensor) -> Tensor:
        self.written[layer] = self._row(output, filled=self.writing)
        return self.written[layer]

    def _silence(self, layer: int, module: nn.Module, given: tuple[Any, ...], output: Any) -> Any:
        if layer in self.written and given and isinstance(given[0], Tensor) and (
                given[0].data_ptr() == self.written[layer].data_ptr()):
            self.norms[layer], self.outcomes[layer] = module, output
            return output
        parts = output if isinstance(output, tuple) else (output,)
        zeros = tuple(part * 0 if isinstance(part, Tensor) else part for part in parts)
        return zeros if isinstance(output, tuple) else zeros[0]

    def _leave(self, layer: int, module: nn.Module, given: object, output: Any) -> None:
        self.left[layer] = output[0] if isinstance(output, tuple) else output


def _is_rms(norm: nn.Module, signs: Tensor, outcome: Tensor) -> bool:
    """Test whether a norm looks at the root mean square alone, which signs do not change."""
    return torch.allclose(norm(signs.abs()).abs(), outcome.abs(), rtol=ROUNDING)
