"""Products with a model's matrices on a processor, by the faster of two libraries in PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch import Tensor, nn

WORTH = 2**22  # multiplications of a product from which oneDNN gains more time than its call takes
FEWEST = 4  # rows of which it gains any


class Linear(nn.Linear):
    """`nn.Linear` that calls oneDNN in place of MKL, where nothing is trained. MKL keeps to narrow
    registers on processors that are not Intel's; oneDNN uses the widest: on an AMD EPYC a product
    takes less than half of the time. Both compute in float32, and differ in the last bits."""

    def forward(self, input: Tensor) -> Tensor:
        if (input.numel() < max(FEWEST * self.in_features, WORTH / self.out_features)
                or input.dtype != torch.float32 or input.device.type != "cpu"
                or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu")):
            return super().forward(input)
        rows = input.reshape(-1, self.in_features)
        if extra := -len(rows) % step(len(rows)):
            rows = nn.functional.pad(rows, (0, 0, 0, extra))
        # Behind no public name, but what torch.compile calls, too.
        out = torch.ops.mkldnn._linear_pointwise(rows, self.weight, self.bias, "none", [], "")
        return out[: len(rows) - extra].view(*input.shape[:-1], self.out_features)


def step(rows: int) -> int:
    """Return what the number of rows is rounded up to a multiple of, so that few sizes occur."""
    return max(8, (1 << rows.bit_length()) >> 3)


def use_onednn(model: nn.Module) -> None:
    """Turn a model's linear modules into `Linear`, if this PyTorch has oneDNN."""
    if torch.backends.mkldnn.is_available():
        for module in model.modules():
            if type(module) is nn.Linear:
                module.__class__ = Linear


@contextmanager
def left_to_pytorch() -> Iterator[None]:
    """Multiply as PyTorch does: where operations are counted or timed, or nothing else would do."""
    with patch.object(Linear, "forward", nn.Linear.forward):
        yield
