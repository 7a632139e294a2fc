"""Products with a model's matrices on a processor, by the faster of two libraries in PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

WORTH = 2**22
"""Multiplications of a product from which oneDNN gains more time than its call takes."""


class Linear(nn.Linear):
    """`nn.Linear` that calls oneDNN in place of MKL, where nothing is trained.

    MKL keeps to narrow registers on processors that are not Intel's. oneDNN uses the widest that
    there are: on an AMD EPYC a product takes less than half of the time. Both compute in float32,
    and differ in the last bits.
    """

    def forward(self, input: Tensor) -> Tensor:
        if (input.numel() * self.out_features < WORTH or input.dtype != torch.float32
                or input.device.type != "cpu" or torch.is_grad_enabled()
                or torch.is_autocast_enabled("cpu")):
            return super().forward(input)
        # Behind no public name, but what torch.compile calls, too.
        return torch.ops.mkldnn._linear_pointwise(input, self.weight, self.bias, "none", [], "")


def use_onednn(model: nn.Module) -> None:
    """Turn a model's linear modules into `Linear`, if this PyTorch has oneDNN."""
    if torch.backends.mkldnn.is_available():
        for module in model.modules():
            if type(module) is nn.Linear:
                module.__class__ = Linear
