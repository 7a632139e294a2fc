"""Where a growing text reaches a limit: memory, time, or what is stored of attention; and whether
the formula of work predicts the time to read a longer text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import torch

from rmutils.core.journal import one_thread
from rmutils.experiments.scale import work
from rmutils.experiments.scale.step_costs import Rates, reading, writing
from rmutils.experiments.scale.work import Shape
from rmutils.models import LanguageModel
from rmutils.stats import POSITIVE, draws, interval_of

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
    """Return what runs out on so many accelerators, and from which length of one text on.

    Weights, keys and values, work and a training's states are shared evenly by all. Keys and values
    stand beside the weights, and stored attention, in float32, beside both.

    Returns
    -------
    DataFrame
        `what`, `tokens` (0: at once, NaN: never), in the order in which they run out.
    """
    room = gpus * rates.assumed.reserve * rates.machine.memory
    held = work.weights(shape)
    needs: dict[str, tuple[Callable[[int], float], float]] = {
        "weights": (lambda n: held, room),
        "keys and values": (lambda n: held + work.cache(shape, n), room),
        "attention of all tokens, stored": (
            lambda n: held + work.cache(shape, n) + work.stored_attention(shape, n, "all"),
            room),
        "attention of the last token, stored": (
            lambda n: held + work.cache(shape, n) + work.stored_attention(shape, n, "row"),
            room),
        f"{PREFILL:.0f} s until the first token": (
            lambda n: reading(shape, n, rates, gpus), PREFILL),
        f"{TOKEN:g} s for each further token": (
            lambda n: writing(shape, n, 1, rates, gpus), TOKEN),
        "DPO, one pair at a time": (
            lambda n: gpus * work.states(shape, "fsdp", gpus)
            + work.activations(shape, 2 * n) + work.logits(shape, 2 * n), room),
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
                work.tensor_parallel(shape, tokens, count)) / computing,
            "context parallel": rates.sending(
                work.context_parallel(shape, tokens, count)) / computing})
    return pd.DataFrame(rows)


@torch.inference_mode()
def reading_times(
    lm: LanguageModel, lengths: Sequence[int], rounds: int, seed: int = 0
) -> pd.DataFrame:
    """Processor seconds of one thread to read texts of random tokens, all lengths in each round.

    The first round, in which much is done for the first time, is not counted.

    Returns
    -------
    DataFrame
        `round`, `length`, `seconds`, `cache` (bytes of keys and values at the end).
    """
    draw, rows = np.random.default_rng(seed), []
    count = lm.model.config.vocab_size
    with one_thread():
        for number in range(rounds + 1):
            for length in lengths:
                ids = torch.from_numpy(draw.integers(0, count, (1, length)))
                started = time.process_time()
                kept = lm.model(ids, use_cache=True, logits_to_keep=1).past_key_values
                seconds = time.process_time() - started
                size = sum(t.nbytes for layer in kept.layers for t in (layer.keys, layer.values))
                rows.append({"round": number, "length": length, "seconds": seconds, "cache": size})
    table = pd.DataFrame(rows)
    return table[table["round"] > 0].reset_index(drop=True)


def prediction_ratio(
    times: pd.DataFrame, work: dict[int, float]
) -> tuple[float, np.ndarray, float]:
    """Predict the time to read the longest text from the times of the shorter ones, as a fixed part
    and a part that grows with the work; compare it with the measured time.

    Parameters
    ----------
    times : DataFrame
        As from `reading_times`, with three lengths or more.
    work : dict
        Length -> operations.

    Returns
    -------
    float, ndarray, float
        Measured time of the longest text over the predicted one; its 95 % interval over rounds; and
        the operations per second that the shorter texts show.
    """
    table = times.pivot(index="round", columns="length", values="seconds")
    ratios, rates = _ratio(draws(table.to_numpy()), [*table.columns], work)
    value, *ends = interval_of(ratios, bounds=POSITIVE, centred=True)
    return float(value), np.array(ends), float(rates[0])


def _ratio(
    means: np.ndarray, lengths: Sequence[int], work: dict[int, float]
) -> tuple[np.ndarray, np.ndarray]:
    """(samples, lengths) -> measured over predicted, and operations per second."""
    *shorter, longest = sorted(range(len(lengths)), key=lambda i: lengths[i])
    known = np.array([work[lengths[i]] for i in shorter])
    # Relative errors count alike: short texts are not to be lost beside long ones.
    weights = 1 / means[:, shorter]
    rows = []
    for weight in weights:
        design = np.stack([np.ones_like(known), known], axis=1) * weight[:, None]
        rows.append(np.linalg.lstsq(design / design.max(0), np.ones(len(known)), rcond=None)[0]
                    / design.max(0))
    fixed, each = np.array(rows).T
    return means[:, longest] / (fixed + each * work[lengths[longest]]), 1 / each
