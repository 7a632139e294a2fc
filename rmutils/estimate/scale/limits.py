"""Where something gives out as a text grows: memory, time, or what is stored of attention."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from rmutils.estimate.scale import exchange, memory, work
from rmutils.estimate.scale.decoding import Rates, reading, writing
from rmutils.estimate.scale.shapes import Shape

LONGEST = 1 << 30
"""Tokens beyond which nobody asks."""
PREFILL, TOKEN = 60.0, 0.1
"""Seconds that a reader of an answer waits for its first token, and for each further one, before we
call it too slow. Both are ours."""


def reaches(need: Callable[[int], float], limit: float) -> int | None:
    """The shortest text that needs more than the limit, by bisection; 0 if an empty one does; None
    if none does.

    Parameters
    ----------
    need : callable
        Of a number of tokens; never falls.
    """
    if need(0) > limit:
        return 0
    if need(LONGEST) <= limit:
        return None
    low, high = 0, LONGEST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if need(middle) > limit else (middle, high)
    return high


def limits(shape: Shape, gpus: int, rates: Rates) -> pd.DataFrame:
    """What gives out on so many accelerators, and from which length of one text on.

    Weights, keys and values, work and a training's states are shared evenly by all. Keys and values
    stand beside the weights, and stored attention, in float32, beside both.

    Returns
    -------
    DataFrame
        `what`, `tokens` (0: at once, NaN: never), in the order in which they give out.
    """
    room = gpus * rates.assumed.reserve * rates.machine.memory
    held = memory.weights(shape)
    needs: dict[str, tuple[Callable[[int], float], float]] = {
        "weights": (lambda n: held, room),
        "keys and values": (lambda n: held + memory.cache(shape, n), room),
        "attention of all tokens, stored": (
            lambda n: held + memory.cache(shape, n) + memory.stored_attention(shape, n, "all"),
            room),
        "attention of the last token, stored": (
            lambda n: held + memory.cache(shape, n) + memory.stored_attention(shape, n, "row"),
            room),
        f"{PREFILL:.0f} s until the first token": (
            lambda n: reading(shape, n, rates, gpus), PREFILL),
        f"{TOKEN:g} s for each further token": (
            lambda n: writing(shape, n, 1, rates, gpus), TOKEN),
        "DPO, one pair at a time": (
            lambda n: gpus * memory.states(shape, "fsdp", gpus)
            + memory.activations(shape, 2 * n) + memory.logits(shape, 2 * n), room),
    }
    rows = [{"what": what, "tokens": reaches(need, limit)} for what, (need, limit) in needs.items()]
    table = pd.DataFrame(rows).astype({"tokens": float})
    return table.sort_values("tokens", kind="stable", na_position="last", ignore_index=True)


def equal_work(shape: Shape) -> int | None:
    """From which length on attention works more than all matrices together in reading a text."""
    return reaches(lambda n: work.attention(shape, n) - (
        work.forward(shape, n, logits=0) - work.attention(shape, n)), 0.0)


def shares(shape: Shape, tokens: int, gpus: list[int], rates: Rates) -> pd.DataFrame:
    """Time to send beside time to compute, for a text that is read by several accelerators.

    Returns
    -------
    DataFrame
        `gpus`; `tensor parallel`, `context parallel`: seconds to send over seconds to compute, by
        each, were nothing sent while it computes.
    """
    rows = []
    for count in gpus:
        computing = reading(shape, tokens, rates) / count
        rows.append({
            "gpus": count,
            "tensor parallel": rates.sending(
                exchange.tensor_parallel(shape, tokens, count)) / computing,
            "context parallel": rates.sending(
                exchange.context_parallel(shape, tokens, count)) / computing})
    return pd.DataFrame(rows)
