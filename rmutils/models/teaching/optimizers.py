"""The optimizers of a teaching model: Muon for the matrices of the layers, AdamW for the rest."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from rmutils.models.teaching.recipes import TeachingRecipe

PRODUCTS = (Tensor.matmul, Tensor.__matmul__, torch.matmul, torch.addmm)
LOW = (torch.bfloat16, "cpu")


def optimizers(model: nn.Module, recipe: TeachingRecipe) -> list[torch.optim.Optimizer]:
    """Both, with the rates of the recipe."""
    named = dict(model.named_parameters())
    matrices = {n for n, p in named.items() if p.ndim == 2 and "layers." in n}
    others = [p for n, p in named.items() if n not in matrices]
    return [
        _Muon([named[n] for n in sorted(matrices)], lr=recipe.matrix_lr, weight_decay=0.01,
              adjust_lr_fn="original"),
        torch.optim.AdamW(others, lr=recipe.other_lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]


class _Muon(torch.optim.Muon):
    """torch's, whose step multiplies matrices in bfloat16."""

    def step(self, closure=None):
        with _RoundedProducts():
            return super().step(closure)


class _RoundedProducts(TorchFunctionMode):
    """On a CPU, products of bfloat16 are made in float32 and rounded once.

    Processors with instructions for bfloat16 do just that. For others torch has a loop that took
    two thirds of a training step.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in PRODUCTS and {(t.dtype, t.device.type) for t in args} == {LOW}:
            return func(*(t.float() for t in args), **kwargs).bfloat16()
        return func(*args, **kwargs)
