"""Seconds of accelerators that read and write texts: what bounds them, work or memory."""

from __future__ import annotations

from dataclasses import dataclass

from rmutils.estimate.scale import exchange, memory, work
from rmutils.estimate.scale.machines import Assumptions, Machine
from rmutils.estimate.scale.shapes import Shape


@dataclass(frozen=True)
class Rates:
    """What an accelerator does per second, by assumption."""

    machine: Machine
    assumed: Assumptions

    def computing(self, flops: float) -> float:
        """Seconds of so many operations."""
        return flops / (self.machine.flops * self.assumed.compute)

    def moving(self, size: float) -> float:
        """Seconds to read so many bytes from memory."""
        return size / (self.machine.bandwidth * self.assumed.bandwidth)

    def sending(self, size: float) -> float:
        """Seconds to send so many bytes to a neighbour."""
        return size / (self.machine.link * self.assumed.link)


def reading(shape: Shape, tokens: int, rates: Rates, share: int = 1) -> float:
    """Seconds to read a text (prefill), which work bounds; so many accelerators share each layer,
    and send in turn."""
    return (rates.computing(work.forward(shape, tokens, logits=1)) / share
            + rates.sending(exchange.tensor_parallel(shape, tokens, share)))


def writing(shape: Shape, cached: int, at_once: int, rates: Rates, share: int = 1) -> float:
    """Seconds per token of all texts together.

    Each step reads all weights once, and the keys and values of each text; it computes a token of
    each. The slower of both counts.
    """
    moved = memory.weights(shape) + at_once * memory.cache(shape, cached)
    flops = at_once * work.forward(shape, 1, cached)
    seconds = max(rates.moving(moved), rates.computing(flops)) / share
    return (seconds + rates.sending(exchange.tensor_parallel(shape, at_once, share))) / at_once


def fitting(shape: Shape, tokens: int, rates: Rates, share: int = 1) -> int:
    """Texts of so many tokens whose keys and values fit beside the weights, as far as they are
    wanted at once; at least one."""
    room = share * rates.assumed.reserve * rates.machine.memory - memory.weights(shape)
    return int(max(1, min(rates.assumed.together, room // memory.cache(shape, tokens))))
